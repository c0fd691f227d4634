// The README's first example, whole: a model of two tensors learns to be zero on four ranks.
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <vector>

// example-begin include
#include <tutti/strategies/horovod.hpp>
#include <tutti/transport/in_process.hpp>
#include <tutti/tutti.hpp>
// example-end

using namespace tutti::literals;

struct my_batch {
  float target;
};

/// Loss is half the squared distance of every parameter to the batch's target.
class my_model {
 public:
  my_model() : memory_(std::vector<tutti::arena::declaration>{{"weight", 1000}, {"bias", 10}}) {
    for (float& each : memory_.parameters()) {
      each = 1.0f;
    }
  }
  ~my_model() {
    for (const float each : memory_.parameters()) {
      if (std::abs(each) > 0.01f) {
        std::cerr << "did not converge: " << each << "\n";
        std::exit(1);
      }
    }
  }
  const std::vector<tutti::tensor>& tensors() const { return memory_.tensors(); }

  template <class Use>
  void forward(my_batch batch, Use use) {
    batch_ = batch;
    for (unsigned id = 0; id < tensors().size(); ++id) {
      use(tutti::tensor_id{id});
    }
  }
  template <class Done>
  void backward(Done done) {
    for (unsigned id = static_cast<unsigned>(tensors().size()); id-- > 0;) {
      const auto& each = tensors()[id];
      for (std::size_t i = 0; i < each.elements; ++i) {
        each.gradient[i] = each.parameter[i] - batch_.target;
      }
      done(tutti::tensor_id{id});
    }
  }

 private:
  tutti::arena memory_;
  my_batch batch_{};
};

/// Every worker's own share: targets that are zero on average.
std::vector<my_batch> my_loader(int worker, int workers) {
  const float off_centre = static_cast<float>(2 * worker - (workers - 1));
  return std::vector<my_batch>(60, my_batch{off_centre});
}

// example-begin loop
using Strategy = tutti::strategies::Horovod;  // or tutti::compose<…>, policies in any order

void train(tutti::transport::in_process& world) {
  my_model model;
  auto engine = tutti::make_engine<Strategy>(world, model.tensors(),
                                             tutti::optimizer::sgd{.learning_rate = 0.1f},
                                             {.fusion = {.bytes = 32_MiB}});
  if (engine.serves()) {  // a parameter server's rank; false everywhere else
    engine.serve();
    return;
  }
  for (auto& batch : my_loader(engine.worker(), engine.workers())) {
    model.forward(batch, [&](tutti::tensor_id id) { engine.wait(id); });  // parameter is current
    model.backward([&](tutti::tensor_id id) { engine.ready(id); });       // gradient is final
  }
  engine.wait();
  std::cout << engine.report();
}

int main() { tutti::transport::run_ranks(4, train); }
// example-end
