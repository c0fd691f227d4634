#include "strategies/models.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "models/model.hpp"
#include "models/replayed/computations.hpp"
#include "models/replayed/replayed.hpp"

namespace bench {

namespace {

constexpr std::size_t batch_size = 32;
constexpr double memory_bandwidth = 900e9;  // of a V100, in bytes a second

class network : public tutti::benchmark::model {
 public:
  network(const models::declaration& of, int rank)
      : network_(of, batch_size, 1),
        pixels_(batch_size * network_.input().size()),
        labels_(batch_size) {
    std::mt19937 random(static_cast<unsigned>(rank));
    for (float& each : pixels_) {
      each = static_cast<float>(random() % 256) / 128.0F - 1.0F;
    }
    for (std::uint8_t& each : labels_) {
      each = static_cast<std::uint8_t>(random() % 10);
    }
  }

  const std::vector<tutti::tensor>& tensors() const override { return network_.tensors(); }
  void forward(const std::function<void(tutti::tensor_id)>& use) override {
    network_.forward({pixels_, labels_}, use);
  }
  void backward(const std::function<void(tutti::tensor_id)>& done) override {
    network_.backward(done);
  }
  std::size_t samples() const override { return batch_size; }

 private:
  models::model network_;
  std::vector<float> pixels_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace

const std::vector<tutti::benchmark::model_choice>& networks() {
  static const auto all = [] {
    std::vector<tutti::benchmark::model_choice> made;
    for (const auto& each : {models::mlp(), models::cnn()}) {
      made.push_back(
          {each.name, [each](int rank) { return std::make_unique<network>(each, rank); }});
    }
    return made;
  }();
  return all;
}

const std::vector<tutti::benchmark::replayed_choice>& replays() {
  static const auto all = [] {
    std::vector<tutti::benchmark::replayed_choice> made;
    for (const char* name : {"resnet50", "bert_base"}) {
      const auto network = models::replay(name);
      for (const int gigabits : {1, 10}) {
        made.push_back({name,
                        models::computations(network),
                        network.batch,
                        {memory_bandwidth},
                        std::to_string(gigabits).append("Gbit"),
                        {gigabits * 1e9 / 8, 50e-6}});
      }
    }
    return made;
  }();
  return all;
}

}  // namespace bench
