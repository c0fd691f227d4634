// A LibTorch program under mpirun, in which `backward()` leaves the mean of all ranks' gradients.
#include <ATen/ATen.h>
#include <iostream>
#include <torch/csrc/autograd/variable.h>
#include <vector>

#include "tutti/adapter/torch.hpp"
#include "tutti/strategies/wfbp.hpp"
#include "tutti/transport/mpi.hpp"

int main() {
  using tutti::transport::mpi;
  mpi world;
  mpi beside;

  // These could be a module's named_parameters(), in a program that includes <torch/torch.h>.
  const float first = static_cast<float>(world.rank());
  std::vector<tutti::adapter::named_parameter> parameters{
      {"weight", at::full({3, 2}, first).requires_grad_()},
      {"bias", at::zeros({2}).requires_grad_()}};
  tutti::adapter::data_parallel<tutti::strategies::WFBPUnlimited, mpi> model(world, beside,
                                                                             parameters);
  model.listen();

  const at::Tensor& weight = parameters[0].value;
  const at::Tensor& bias = parameters[1].value;
  const at::Tensor batch = at::full({4, 3}, first + 1);
  for (int step = 0; step < 3; ++step) {
    (at::matmul(batch, weight) + bias).sum().backward();
    // Each element of the weight's gradient is 4 rows of rank + 1, and its mean over the ranks is
    // this.
    const float mean = 4.0f * static_cast<float>(world.size() + 1) / 2;
    if (!weight.grad().eq(mean).all().item<bool>() || !bias.grad().eq(4).all().item<bool>()) {
      std::cerr << "rank " << world.rank() << " has " << weight.grad() << "\n";
      return 1;
    }
    at::NoGradGuard no_graph;
    weight.sub_(weight.grad(), 0.5);
    weight.mutable_grad() = at::Tensor();
    bias.mutable_grad() = at::Tensor();
  }
  // Rank 0's weights were zeros, and three steps of half the mean have been taken.
  return weight.eq(-3.0f * static_cast<float>(world.size() + 1)).all().item<bool>() ? 0 : 1;
}
