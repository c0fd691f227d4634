// All-reduces among the ranks of a host and then among hosts, over NCCL's stand-in. The laws of
// every transport hold here, where the devices of several ranks are on one host.
#include <barrier>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "gpu/stand_in/runtime.hpp"
#include "support/collective_laws.hpp"
#include "support/transports.hpp"
#include "tutti/base/cuda/error.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/nccl.hpp"

namespace tutti::test {

/// Memory that a stand-in of a device reaches, and that ranks need not free at the same time.
template <>
class memory<cuda::stream> {
 public:
  memory(cuda::stream& queue, std::size_t bytes) : queue_(&queue), bytes_(bytes) {}
  std::span<std::byte> span() { return bytes_; }
  std::vector<std::byte> read() { return test::read(*queue_, bytes_); }
  void write(const std::vector<std::byte>& values) {
    queue_->copy(bytes_.data(), values.data(), values.size());
    queue_->synchronize();
  }

 private:
  cuda::stream* queue_;
  std::vector<std::byte> bytes_;
};

template <class Work>
void run_in_order(cuda::stream& queue, Work work) {
  stood_in_by(queue.native_handle()).run(std::move(work));
}

/// Ranks that are threads with a device each.
struct placed_devices {
  using transport = tutti::transport::nccl<tutti::transport::in_process>;

  template <class Body>
  static bool run(const std::vector<int>& hosts, Body body) {
    const int ranks = static_cast<int>(hosts.size());
    std::barrier together(ranks);  // because freeing waits for the streams of all stand-in devices
    tutti::transport::run_ranks(
        ranks,
        [&](tutti::transport::in_process& carrier) {
          cuda::check(cudaSetDevice(carrier.rank()));
          transport world(carrier);
          together.arrive_and_wait();
          drive(world, body(world));
          together.arrive_and_wait();
        },
        hosts);
    return true;
  }
};

using hierarchical = testing::Types<
    collective_on<placed_devices, collective::hierarchical<>>,
    collective_on<placed_devices,
                  collective::hierarchical<collective::canonical, collective::halving_doubling>>>;
INSTANTIATE_TYPED_TEST_SUITE_P(StandInNCCL, CollectiveLaw, hierarchical);

}  // namespace tutti::test
