// Two ranks on one GPU, compiled by a host's compiler; the kernels come from tutti::cuda. Without a
// GPU the library says so, and what to do.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <tutti/base/cuda/memory.hpp>
#include <tutti/strategies/top_k.hpp>
#include <tutti/transport/in_process_cuda.hpp>
#include <tutti/tutti.hpp>
#include <vector>

void train(tutti::transport::in_process_cuda& world) {
  constexpr std::size_t n = 1000;
  tutti::cuda::stream compute;
  const tutti::cuda::buffer<float> parameter(n);
  const tutti::cuda::buffer<float> gradient(n);
  compute.clear(parameter.data(), n * sizeof(float));
  compute.synchronize();
  auto engine = tutti::make_engine<tutti::strategies::TopK>(
      world, {tutti::tensor("weight", parameter.span(), gradient.span())}, tutti::optimizer::sgd{});
  compute.clear(gradient.data(), n * sizeof(float));
  engine.ready(tutti::tensor_id{0}, compute);
  engine.wait();
}

int main() {
  try {
    tutti::transport::run_ranks<tutti::transport::in_process_cuda>(2, train);
  } catch (const tutti::cuda_error& none) {
    std::cout << none.what() << '\n';
    const bool told = std::strstr(none.what(), "Fix: run on a machine with a GPU") != nullptr;
    return told ? EXIT_SUCCESS : EXIT_FAILURE;
  }
}
