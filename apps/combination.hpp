#pragma once

#include <cstddef>
#include <string_view>

#include "common/cell.hpp"
#include "common/sgd_values.hpp"
#include "data/loader.hpp"
#include "models/model.hpp"
#include "tutti/tutti.hpp"

/// The program of one cell of the grid: trains a network on real images with one strategy, for
/// twenty steps, and prints one row of the table.
namespace combination {

template <class Strategy, class World>
void train(World& world, const common::job& job, const data::dataset& images,
           std::string_view name) {
  const auto declared = common::network(job, images);
  auto model = models::make_model(world, declared, job.batch_size, job.seed);
  auto engine = tutti::make_engine<Strategy>(world, model.tensors(),
                                             common::sgd_values<Strategy>(declared, job),
                                             common::options<Strategy>(job));
  if (engine.serves()) {
    engine.serve();
    return;
  }
  const auto worker = static_cast<std::size_t>(engine.worker());
  const auto workers = static_cast<std::size_t>(engine.workers());
  data::loader loader(images, {job.batch_size, worker, workers, job.seed, common::repeats(job)});
  common::row row(engine, job);
  for (const auto& batch : loader.epoch(0)) {
    model.forward(batch, [&](tutti::tensor_id id) { engine.wait(id, model.queue()); });
    model.backward([&](tutti::tensor_id id) { engine.ready(id, model.queue()); });
    if (row.step(model.loss()) == job.steps) {
      break;
    }
  }
  row.print(name);
}

/// The `main` of a cell, whose row of the table is called `name`.
template <class Strategy, class Device>
int run(int argc, char** argv, std::string_view name) {
  return common::run_cell<Strategy, Device>(
      argc, argv, [name](auto& world, const auto& job, const auto& images) {
        train<Strategy>(world, job, images, name);
      });
}

}  // namespace combination
