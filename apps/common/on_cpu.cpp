#include "common/on_cpu.hpp"

#include "common/on_processes.hpp"
#include "tutti/base/queue.hpp"
#include "tutti/transport/in_process.hpp"

namespace common {

void on_cpu::expect(const job& asked) {
  if (asked.precision != "fp32") {
    throw flag_error("--precision " + asked.precision +
                     " needs a GPU. Fix: leave it out, or --device cuda");
  }
  expect_processes(asked);
}

void on_cpu::run(const job& asked, int servers,
                 const std::function<void(tutti::transport::any_transport&)>& body) {
  const auto on_any = [&body](auto& world) {
    tutti::transport::any_transport any(world);
    body(any);
  };
  if (!uses_mpi(asked)) {
    tutti::transport::run_ranks(asked.workers() + servers, on_any);
    return;
  }
#if __has_include(<mpi.h>)
  run_process<tutti::inline_queue>(asked, servers, on_any);
#endif
}

}  // namespace common
