// A tensor that is on no device, or on another device, is refused in one sentence. No tensor here
// is on a device, but LibTorch can describe one that is without asking the device.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <string>

#include "tutti/adapter/torch_cuda.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/error.hpp"

namespace tutti::test {
namespace {

std::string refusal_of(const at::Tensor& value) {
  cuda::stream queue;
  try {
    adapter::torch_memory<cuda::stream>(queue).expect(value, "weight");
  } catch (const usage_error& refused) {
    return refused.what();
  }
  return "";
}

at::Tensor said_to_lie_on(at::Device device) {
  static float nothing = 0;
  return at::for_blob(&nothing, {1})
      .options(at::TensorOptions(at::kFloat).device(device))
      .target_device(device)
      .make_tensor();
}

}  // namespace

TEST(CudaTensors, LieWhereTheTransportWasMade) {
  EXPECT_EQ(refusal_of(said_to_lie_on({at::kCUDA, 0})), "");
  const std::string where =
      ", and this rank trains on cuda:0, where its transport was made. Fix: model.to(\"cuda:0\"), "
      "or "
      "make the model's device current before the transport";
  EXPECT_EQ(refusal_of(said_to_lie_on({at::kCUDA, 1})), "weight lies on cuda:1" + where);
  EXPECT_EQ(refusal_of(at::zeros({3})), "weight lies on cpu" + where);
}

TEST(CudaTensors, AreNotOnTheHost) {
  cuda::stream queue;
  const adapter::torch_memory<cuda::stream> memory(queue);
  EXPECT_FALSE(memory.is_on_host(said_to_lie_on({at::kCUDA, 0})));
  EXPECT_TRUE(memory.is_on_host(at::zeros({3})));
}

}  // namespace tutti::test
