#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "common/algorithms_by_size.hpp"
#include "common/cell.hpp"
#include "common/described.hpp"
#include "common/input.hpp"
#include "common/job.hpp"
#include "common/output.hpp"
#include "data/dataset.hpp"
#include "data/loader.hpp"
#include "models/model.hpp"
#include "train/density.hpp"
#include "train/evaluation.hpp"
#include "train/log.hpp"
#include "train/optimizer.hpp"
#include "train/schedule.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/core/acting.hpp"
#include "tutti/core/checkpoint.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/core/rate_by_schedule.hpp"
#include "tutti/core/settings.hpp"
#include "tutti/core/startup.hpp"
#include "tutti/monitor/timeline.hpp"
#include "tutti/optimizer/rate_schedule.hpp"

namespace train {

/// A kind of device on which a strategy trains.
struct device {
  std::string_view name;
  /// Throws flag_error if the job cannot run on it.
  void (*expect)(const common::job&);
  void (*run)(const common::job&, const data::splits&);
};

/// A named strategy in the registry, with its type erased.
struct trainable {
  std::string_view name;
  common::description (*described)();
  common::flag_values (*flags)(const common::job&);
  /// Throws flag_error if the job sets an option that this strategy does not have, or gives one a
  /// value that cannot be.
  void (*expect)(const common::job&);
  std::vector<device> devices;
};

const std::vector<trainable>& registry();

inline std::string of_rank(const std::string& file, int rank) {
  return file + "." + std::to_string(rank);
}

inline std::string previous(const std::string& file) { return file + ".previous"; }

/// The first bytes of a checkpoint's file.
inline constexpr std::array<char, 8> checkpoint_name{'t', 'r', 'a', 'i', 'n', '-', '2', '\n'};

/// Returns the settings that a resumed run must share with its checkpoint, one `flag=value` a line:
/// how batches are drawn, and the optimizer's values without the learning rate, which the schedule
/// sets.
template <class Optimizer>
std::string identity(const common::job& job, Optimizer values) {
  values.learning_rate = 0;
  tutti::settings all;
  all.add("model", job.model);
  all.add("data", job.data.substr(0, job.data.find(':')));
  all.add("augment", job.augment);
  all.add("batch-size", std::to_string(job.batch_size));
  all.add("seed", std::to_string(job.seed));
  all.add_values("optimizer", values);
  return std::move(all).lines();
}

/// Throws usage_error, naming the flag, unless the checkpoint's settings are those of `mine`.
inline void expect_head(tutti::detail::checkpoint_reader& own, std::string_view mine) {
  std::array<char, 8> begins{};
  own.bytes(std::as_writable_bytes(std::span(begins)));
  if (begins != checkpoint_name) {
    throw tutti::usage_error(
        "this is not a checkpoint of this version of tutti-train. Fix: name a file that its "
        "--checkpoint wrote");
  }
  const std::string saved = own.text();
  for (std::string_view lines = saved; !lines.empty() || !mine.empty();) {
    const auto [flag, was] = tutti::detail::next_setting(lines);
    const auto [its_flag, asked] = tutti::detail::next_setting(mine);
    if (flag != its_flag) {
      throw tutti::usage_error(
          "the checkpoint is of a run with another --optimizer. Fix: give the same one");
    }
    if (was != asked) {
      throw tutti::usage_error(tutti::sentence({"the checkpoint is of a run with --", flag, " ",
                                                was, ", but this run has --", flag, " ", asked,
                                                ". Fix: --", flag, " ", was}));
    }
  }
}

/// Calls `use`. If it throws usage_error, the file's name is added to the message.
template <class Use>
auto in_the_name_of(const std::string& file, Use use) {
  try {
    return use();
  } catch (const tutti::usage_error& wrong) {
    throw tutti::usage_error(file + ": " + wrong.what());
  }
}

/// Saves a checkpoint. It appears whole or not at all, and the previous one remains until every
/// rank has written this one. Whenever a job is killed, there is therefore a step of which every
/// rank has a checkpoint, from the first checkpoint on. Every worker must call it.
template <class Engine, class Model>
void write_checkpoint(Engine& engine, Model& model, const common::job& job,
                      const std::string& file) {
  const std::string partial = file + ".partial";
  {
    std::ofstream out(partial, std::ios::binary);
    common::expect_writable(out, partial);
    // Encloses the engine's checkpoint, which has a checksum of its own.
    tutti::detail::checkpoint_writer own(out);
    own.bytes(std::as_bytes(std::span(checkpoint_name)));
    own.text(identity(job, engine.values()));
    in_the_name_of(partial, [&] {
      tutti::save(engine, out);
      own.floats(tutti::host_view(model.queue(), model.statistics()));
      own.finish();
    });
  }
  engine.average(0);  // no rank continues while another may still fail to write
  // When a job is killed, some ranks may be past this point and others not, but no rank is past the
  // same point of the next checkpoint.
  if (std::filesystem::exists(file)) {
    std::filesystem::rename(file, previous(file));
  }
  std::filesystem::rename(partial, file);
}

/// Returns what `read` returns for a file, and names the file in its errors.
template <class Read>
auto read_from(const std::string& file, Read read) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw tutti::usage_error("cannot read " + file + ". Fix: name a checkpoint of this job");
  }
  return in_the_name_of(file, [&] { return read(in); });
}

/// Loads a checkpoint from one file. Every worker must call it.
template <class Engine, class Model>
void load_checkpoint(Engine& engine, Model& model, const common::job& job,
                     const std::string& file) {
  read_from(file, [&](std::istream& in) {
    tutti::detail::checkpoint_reader own(in);
    expect_head(own, identity(job, engine.values()));
    tutti::load(engine, in);
    tutti::fill_from_host(model.queue(), model.statistics(),
                          [&own](std::span<float> statistics) { own.floats(statistics); });
    own.expect_hash();
    if (in.peek() != std::istream::traits_type::eof()) {
      throw tutti::usage_error(
          "the checkpoint is longer than what was saved. Fix: use an earlier one");
    }
  });
}

/// Resumes from the newest step of which every rank has a checkpoint. If the job was killed while
/// its ranks saved, some ranks are a step ahead. They load their previous checkpoint, which is then
/// renamed to be the current one. Every worker must call it.
template <class Engine, class Model>
void read_checkpoint(Engine& engine, Model& model, const common::job& job,
                     const std::string& file) {
  std::error_code ignored;
  bool whole = std::filesystem::exists(file, ignored);
  const bool has_previous = std::filesystem::exists(previous(file), ignored);
  const auto chosen = [&] { return whole || !has_previous ? file : previous(file); };
  const auto step = [&] {
    return read_from(chosen(), [&](std::istream& in) {
      tutti::detail::checkpoint_reader own(in);
      expect_head(own, identity(job, engine.values()));
      return static_cast<double>(tutti::step_of_checkpoint(in));
    });
  };
  double own = step();
  double mean = engine.average(own);
  whole = whole && own <= mean;
  own = step();
  mean = engine.average(own);
  if (engine.average(mean != own ? 1 : 0) > 0) {
    throw tutti::usage_error(file + " is of step " +
                             std::to_string(static_cast<std::uint64_t>(own)) +
                             ", but another rank's checkpoint is not. Fix: use an earlier one");
  }
  load_checkpoint(engine, model, job, chosen());
  engine.average(0);  // no rank continues while another may still refuse its file
  if (!whole && has_previous) {
    // In a directory without write permission the file keeps its name.
    std::filesystem::rename(previous(file), file, ignored);
  }
}

template <class Strategy>
constexpr bool lends_gradients =
    tutti::facts::gives_gradients_back<typename tutti::strategy_of<Strategy>::architecture>;

/// Trains one worker: the loop that a user of tutti writes, with evaluation, checkpoints and
/// output.
template <class Strategy, class Engine, class Model>
class session {
 public:
  session(Engine& engine, Model& model, const common::job& job, const data::splits& images,
          log& out)
      : engine_(&engine),
        model_(&model),
        job_(&job),
        out_(&out),
        worker_(static_cast<std::size_t>(engine.worker())),
        workers_(static_cast<std::size_t>(engine.workers())),
        shown_(common::shown(job, images.train)),
        loader_(images.train,
                {job.batch_size, worker_, workers_, job.seed, common::repeats(job), shown_}),
        test_(&images.test),
        own_share_(share(images.test, worker_, workers_)),
        policies_(rates(job, engine.values().learning_rate, loader_.steps())) {
    if constexpr (selects_a_share<Strategy>) {
      auto set = common::options<Strategy>(job);
      density_ = density<Strategy>(set);
    }
  }

  void run() {
    expect_one_schedule(*job_, [this](std::span<double> values) { engine_->average(values); });
    if (!job_->resume.empty()) {
      read_checkpoint(*engine_, *model_, *job_, of_rank(job_->resume, engine_->worker()));
    }
    out_->begin(
        common::algorithms_by_size<Strategy>(engine_->planned(), common::options<Strategy>(*job_)));
    if (!job_->resume.empty() && (full() || done() >= job_->epochs * loader_.steps())) {
      out_->nothing_left(done());
    }
    policies_.before_training(*engine_);
    for (std::size_t epoch = done() / loader_.steps(); epoch < job_->epochs && !full(); ++epoch) {
      policies_.before_epoch(*engine_, epoch);
      select_share_of(epoch);
      totals seen = train(epoch);
      policies_.after_epoch(*engine_, epoch);
      score(seen);
      if constexpr (replicas_differ<Strategy>) {
        if (epoch + 1 == job_->epochs || full()) {
          seen.worst_accuracy = worst_accuracy(*engine_, *model_, *test_, shown_);
        }
      }
      out_->epoch(epoch, seen, report());
      if (!std::isfinite(seen.loss) && common::repeats(*job_) == 0) {
        end_without_finite_loss(epoch);
      }
      if (!job_->checkpoint.empty()) {
        write_checkpoint(*engine_, *model_, *job_, of_rank(job_->checkpoint, engine_->worker()));
      }
    }
    policies_.after_training(*engine_);
    out_->finish(report());
  }

 private:
  using clock = std::chrono::steady_clock;

  /// Returns the learning rate of each step. The job's flags give its schedule in epochs; `epoch`
  /// is the number of steps in one.
  static tutti::rate_by_schedule rates(const common::job& job, float highest, std::size_t epoch) {
    const auto in_steps = [epoch](double epochs) {
      return static_cast<std::uint64_t>(epochs * static_cast<double>(epoch) + 0.5);
    };
    const std::uint64_t warm_up = in_steps(job.rate_warm_up);
    const tutti::optimizer::rate_schedule set{
        .highest = highest,
        .warm_up = warm_up,
        .steps = in_steps(static_cast<double>(job.epochs)),
        .falling = falling(job.rate),
        .every = std::max<std::uint64_t>(in_steps(job.rate_every), 1),
        .factor = static_cast<float>(job.rate_factor)};
    return tutti::rate_by_schedule(set, warm_up == 0 ? epoch : 1);
  }

  std::size_t done() const { return static_cast<std::size_t>(engine_->steps()); }
  bool full() const { return job_->steps != 0 && done() >= job_->steps; }

  /// Ends the training on every worker, because the loss, which is the same on each, is infinite or
  /// not a number. No later step can mend it, and two more checkpoints would leave none from
  /// before. With one repeated batch, only the speed counts, so that training goes on.
  [[noreturn]] void end_without_finite_loss(std::size_t epoch) {
    policies_.after_training(*engine_);
    out_->finish(report());
    engine_->average(0);  // the first worker that throws ends the job, so rank 0 writes before
    throw tutti::usage_error(
        tutti::sentence({"the loss is not finite in epoch ", epoch + 1, ", so training ends",
                         job_->checkpoint.empty() ? "" : " and the last checkpoint is kept",
                         ". Fix: a smaller --learning-rate"}));
  }

  /// Makes a new plan if the epoch's density differs from the plan's, because a plan contains the
  /// payloads' lengths.
  void select_share_of(std::size_t epoch) {
    if constexpr (selects_a_share<Strategy>) {
      auto set = options_in<Strategy>(epoch, *job_);
      if (const double share = density<Strategy>(set); share != density_) {
        engine_->replan(set);
        density_ = share;
      }
    }
  }

  void hand_in(tutti::tensor_id id) {
    if constexpr (lends_gradients<Strategy>) {
      const auto made = model_->gradient(id);
      const auto room = engine_->gradient(id, model_->queue());
      model_->queue().copy(room.data(), made.data(), made.size_bytes());
    }
    engine_->ready(id, model_->queue());
  }
  /// Returns the engine's report, with the network's own memory for gradients and the servers'
  /// counts of pushes added.
  tutti::report report() const {
    auto all = engine_->report();
    all.gradient_bytes += model_->room_for_gradients();
    all.own_gradient_bytes += model_->room_for_gradients();
    all.pushes = engine_->pushes();
    return all;
  }

  totals train(std::size_t epoch) {
    totals seen;
    const double exposed = engine_->exposed();
    const auto sent = engine_->counted().bytes_sent;
    loader_.epoch(epoch);
    auto last = clock::now();
    const auto since_last = [&last] {
      const auto before = std::exchange(last, clock::now());
      return std::chrono::duration<double>(last - before).count();
    };
    std::size_t step = done() % loader_.steps();  // a resumed run may begin inside an epoch
    const std::size_t left = job_->steps == 0 ? loader_.steps() : job_->steps - done();
    const std::size_t end = std::min(loader_.steps(), step + left);
    for (data::loader::iterator batch(loader_, step); step < end; ++batch) {
      policies_.before_step(*engine_);
      if (batch.is_new()) {
        model_->set_batch(*batch);
      }
      model_->forward([this](tutti::tensor_id id) { engine_->wait(id, model_->queue()); });
      model_->backward([this](tutti::tensor_id id) { hand_in(id); });
      seen.add_step(model_->loss(), model_->correct(), since_last());
      policies_.after_step(*engine_);
      out_->progress(epoch, ++step, loader_.steps(), model_->loss());
    }
    engine_->wait();
    seen.step_seconds.back() += since_last();
    seen.learning_rate = engine_->values().learning_rate;
    seen.exposed = engine_->exposed() - exposed;
    seen.bytes_sent = engine_->counted().bytes_sent - sent;
    return seen;
  }

  /// Replaces the worker's own figures by those over all workers, which are equal on every worker.
  void score(totals& seen) {
    const auto images = static_cast<double>(seen.steps() * job_->batch_size);
    seen.loss = engine_->average(seen.loss);
    seen.train_accuracy = engine_->average(seen.correct) / images;
    seen.test_accuracy = accuracy<Strategy>(*engine_, *model_, own_share_, test_->size(), shown_);
  }

  Engine* engine_;
  Model* model_;
  const common::job* job_;
  log* out_;
  std::size_t worker_;
  std::size_t workers_;
  data::augmentation shown_;
  data::loader loader_;
  const data::dataset* test_;
  data::dataset own_share_;
  tutti::acting<tutti::rate_by_schedule> policies_;
  double density_ = 0;  ///< of the current plan; 0 if the compressor has none
};

template <class Strategy, class World>
void on_rank(World& world, const common::job& job, const data::splits& images, timelines& seen) {
  const auto declared = common::network(job, images.train);
  auto model = [&] {
    if constexpr (lends_gradients<Strategy>) {
      return models::make_model_without_gradients(world, declared, job.batch_size, job.seed);
    } else {
      return models::make_model(world, declared, job.batch_size, job.seed);
    }
  }();
  // The engine always has a timeline. Without --timeline it has no room and records nothing,
  // because an engine type without it would double the build.
  const std::size_t room = job.timeline.empty() ? 0 : std::size_t{1} << 20;
  auto engine =
      tutti::make_engine<Strategy>(world, model.tensors(), optimizer<Strategy>(declared, job),
                                   common::options<Strategy>(job), tutti::monitor::timeline(room));
  if (engine.serves()) {
    engine.serve();
  } else {
    log out(job, Strategy::name, world.rank());
    session<Strategy, decltype(engine), decltype(model)>(engine, model, job, images, out).run();
  }
  seen.add(world.rank(), engine.observed(), model.tensors());
}

template <class Strategy, class Device>
void run(const common::job& job, const data::splits& images) {
  timelines seen;
  Device::run(job, common::servers<Strategy>(job),
              [&](auto& world) { on_rank<Strategy>(world, job, images, seen); });
  if (!job.timeline.empty()) {
    seen.write(job);
  }
}

template <class Strategy>
common::flag_values flags(const common::job& job) {
  auto all = common::policy_flags<Strategy>(job);
  std::ranges::copy(optimizer_flags<Strategy>(job), std::back_inserter(all));
  return all;
}

template <class Strategy>
void expect(const common::job& job) {
  common::options<Strategy>(job);
  optimizer<Strategy>({}, job);
  densities_of_first_epochs<Strategy>(job);
}

template <class Strategy, class... Devices>
trainable entry() {
  return {Strategy::name,
          common::described<Strategy>,
          flags<Strategy>,
          expect<Strategy>,
          {device{Devices::name, Devices::expect, run<Strategy, Devices>}...}};
}

}  // namespace train
