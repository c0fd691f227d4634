// The README's first program, whole: four ranks, each with data of its own, learn the data's mean.

// example-begin program
#include <iostream>
#include <tutti/strategies/horovod.hpp>
#include <tutti/transport/in_process.hpp>
#include <tutti/tutti.hpp>
#include <vector>

using namespace tutti::literals;
using Strategy = tutti::strategies::Horovod;  // or tutti::compose<…>, policies in any order

/// Your model: here two tensors and the loss |parameter - batch|² / 2.
struct my_model {
  tutti::arena memory{std::vector<tutti::arena::declaration>{{"weight", 1000}, {"bias", 10}}};
  float batch = 0;

  template <class Use>
  void forward(float next, Use use) {
    batch = next;
    for (unsigned id = 0; id < memory.tensors().size(); ++id) {
      use(tutti::tensor_id{id});
    }
  }
  template <class Done>
  void backward(Done done) {
    for (unsigned id = 2; id-- > 0; done(tutti::tensor_id{id})) {
      const tutti::tensor& layer = memory.tensors()[id];
      for (std::size_t i = 0; i < layer.elements; ++i) {
        layer.gradient[i] = layer.parameter[i] - batch;
      }
    }
  }
};

void train(tutti::transport::in_process& world) {
  my_model model;
  auto engine = tutti::make_engine<Strategy>(world, model.memory.tensors(),
                                             tutti::optimizer::sgd{.learning_rate = 0.1f},
                                             {.fusion = {.bytes = 32_MiB}});
  if (engine.serves()) {  // a parameter server's rank; false everywhere else
    engine.serve();
    return;
  }
  for (int step = 0; step < 100; ++step) {
    const auto batch = static_cast<float>(engine.worker());
    model.forward(batch, [&](tutti::tensor_id id) { engine.wait(id); });  // parameter is current
    model.backward([&](tutti::tensor_id id) { engine.ready(id); });       // gradient is final
  }
  engine.wait();
  if (engine.worker() == 0) {
    std::cout << "learned " << model.memory.parameters()[0] << "\n" << engine.report();
  }
}

int main() { tutti::transport::run_ranks(4, train); }
// example-end
