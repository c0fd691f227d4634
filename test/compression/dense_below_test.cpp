// A short launch that is sent as floats takes more bytes than a longer one that is compressed.
#include "tutti/compression/dense_below.hpp"

#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

#include "tutti/architecture/all_gather.hpp"
#include "tutti/architecture/reduce_scatter_all_gather.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/compression/error_feedback.hpp"
#include "tutti/compression/scaled_sign.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/fusion/when_ready.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/transport/in_process.hpp"

namespace tutti {
namespace {

/// 101 elements are compressed and 100 are not. Of 301 on three ranks, one part is compressed and
/// two are not.
constexpr std::size_t bound = 404;

/// All elements of a gradient have one magnitude, so that a scale and signs are exact.
template <class Architecture>
void means_are_exact() {
  using strategy =
      compose<compression::dense_below<compression::error_feedback<compression::scaled_sign>>,
              Architecture, fusion::when_ready>;
  transport::run_ranks(3, [](transport::in_process& world) {
    arena memory(std::vector<arena::declaration>{{"short", 60}, {"long", 301}});
    engine_options<strategy> set;
    set.compression.bytes = bound;
    auto engine = make_engine<strategy>(world, memory.tensors(), optimizer::none(), set);
    for (int step = 0; step < 3; ++step) {
      for (float& each : memory.gradients()) {
        each = static_cast<float>(world.rank() + step);
      }
      engine.ready(tensor_id(0));
      engine.wait(tensor_id(0));  // so that the tensors are launched separately
      engine.ready(tensor_id(1));
      engine.wait();
      for (const float each : memory.gradients()) {
        ASSERT_EQ(each, static_cast<float>(1 + step));
      }
    }
  });
}

TEST(DenseBelow, HasRoomForShortPartsOfALaunch) {
  means_are_exact<architecture::reduce_scatter_all_gather>();
}
TEST(DenseBelow, HasRoomForALaunchThatIsShort) { means_are_exact<architecture::all_gather>(); }

}  // namespace
}  // namespace tutti
