#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/cell.hpp"
#include "common/job.hpp"
#include "common/pace.hpp"
#include "common/ranks.hpp"
#include "data/dataset.hpp"
#include "data/loader.hpp"
#include "models/model.hpp"
#include "train/log.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/monitor/timeline.hpp"

namespace train {

/// A named strategy as the registry knows it.
struct trainable {
  std::string_view name;
  int (*servers)(const common::job&);
  std::vector<std::pair<std::string, std::string>> (*flags)();
  void (*run)(const common::job&, const data::splits&);
};

const std::vector<trainable>& registry();

inline std::string of_rank(const std::string& file, int rank) {
  return file + "." + std::to_string(rank);
}

/// A checkpoint appears whole or not at all: a run killed while writing keeps the one before.
template <class Engine>
void write_checkpoint(Engine& engine, const std::string& file) {
  const std::string partial = file + ".partial";
  {
    std::ofstream out(partial, std::ios::binary);
    if (!out) {
      throw tutti::usage_error("cannot write " + partial + ". Fix: a directory that exists");
    }
    tutti::save(engine, out);
  }
  std::filesystem::rename(partial, file);
}

template <class Engine>
void read_checkpoint(Engine& engine, const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw tutti::usage_error("cannot read " + file + ". Fix: a checkpoint of this job's");
  }
  try {
    tutti::load(engine, in);
  } catch (const tutti::usage_error& wrong) {
    throw tutti::usage_error(file + ": " + wrong.what());
  }
}

/// The training loop: what a user of tutti writes.
template <class Engine>
void epochs(Engine& engine, models::model& model, const common::job& job,
            const data::splits& images, float learning_rate, log& out) {
  const auto worker = static_cast<std::size_t>(engine.worker());
  const auto workers = static_cast<std::size_t>(engine.workers());
  data::loader loader(images.train, {job.batch_size, worker, workers, job.seed});
  std::size_t done = static_cast<std::size_t>(engine.steps());
  for (std::size_t epoch = done / loader.steps(); epoch < job.epochs; ++epoch) {
    auto values = engine.values();
    values.learning_rate = models::falling(learning_rate, epoch, job.epochs);
    engine.change(values);
    epoch_totals totals;
    const double exposed = engine.exposed();
    const auto sent = engine.counted().bytes_sent;
    const auto begin = std::chrono::steady_clock::now();
    for (const auto& batch : loader.epoch(epoch)) {
      model.forward(batch, [&](tutti::tensor_id id) { engine.wait(id); });
      model.backward([&](tutti::tensor_id id) { engine.ready(id); });
      totals.add(model.loss(), model.correct());
      out.progress(epoch, totals.steps, loader.steps(), model.loss());
      if (job.steps != 0 && ++done == job.steps) {
        break;
      }
    }
    engine.wait();
    totals.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    totals.exposed = engine.exposed() - exposed;
    totals.bytes_sent = engine.counted().bytes_sent - sent;
    totals.loss = engine.average(totals.loss);
    totals.correct = engine.average(totals.correct);
    totals.test_accuracy = engine.average(models::evaluate(model, images.test).accuracy());
    out.epoch(epoch, totals, engine.report());
    if (!job.checkpoint.empty()) {
      write_checkpoint(engine, of_rank(job.checkpoint, engine.worker()));
    }
    if (job.steps != 0 && done == job.steps) {
      break;
    }
  }
}

template <class Strategy, class World>
void on_rank(World& world, const common::job& job, const data::splits& images, timelines& seen) {
  const auto declared = models::find(job.model);
  models::model model(declared, job.batch_size, job.seed);
  // A timeline without room keeps nothing; a second instantiation would double the build.
  const std::size_t room = job.timeline.empty() ? 0 : std::size_t{1} << 20;
  const auto values = common::pace<Strategy>(declared, job);
  auto engine =
      tutti::make_engine<Strategy>(world, model.tensors(), values, common::options<Strategy>(job),
                                   tutti::monitor::timeline(room));
  if (engine.serves()) {
    engine.serve();
  } else {
    if (!job.resume.empty()) {
      read_checkpoint(engine, of_rank(job.resume, engine.worker()));
    }
    log out(job, Strategy::name, world.rank());
    epochs(engine, model, job, images, values.learning_rate, out);
  }
  seen.add(world.rank(), engine.observed(), model.tensors());
}

template <class Strategy>
int servers_of(const common::job& job) {
  constexpr bool any =
      tutti::facts::has_servers<typename tutti::strategy_of<Strategy>::architecture>;
  return any ? job.servers : 0;
}

template <class Strategy>
void run(const common::job& job, const data::splits& images) {
  timelines seen;
  common::on_ranks(job, servers_of<Strategy>(job),
                   [&](auto& world) { on_rank<Strategy>(world, job, images, seen); });
  if (!job.timeline.empty()) {
    seen.write(job.timeline);
  }
}

template <class Strategy>
trainable entry() {
  return {Strategy::name, servers_of<Strategy>, common::policy_flags<Strategy>, run<Strategy>};
}

}  // namespace train
