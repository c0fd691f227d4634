#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <istream>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/error.hpp"
#include "tutti/base/loops.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/plan.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/type_name.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/core/resumed_memories.hpp"
#include "tutti/core/settings.hpp"
#include "tutti/core/state_memory.hpp"
#include "tutti/role/architecture.hpp"

namespace tutti {

namespace detail {

using magic = std::array<char, 8>;
inline constexpr magic checkpoint_magic{'t', 'u', 't', 't', 'i', '1', '0', '\n'};

/// Writes a checkpoint to a stream. Hashes of everything written so far stand between the values,
/// so that a damaged file is reported as damaged, and not as that of another run.
class checkpoint_writer {
 public:
  explicit checkpoint_writer(std::ostream& out) : out_(&out) {}

  void bytes(std::span<const std::byte> written) {
    out_->write(reinterpret_cast<const char*>(written.data()),
                static_cast<std::streamsize>(written.size()));
    hash_.feed(written);
  }
  template <class T>
  void value(const T& written) {
    bytes(std::as_bytes(std::span(&written, 1)));
    hash();
  }
  void text(std::string_view written) {
    value(std::uint64_t{written.size()});
    bytes(std::as_bytes(std::span(written)));
    hash();
  }
  void floats(std::span<const float> written) {
    value(std::uint64_t{written.size()});
    bytes(std::as_bytes(written));
  }
  void numbers(std::span<const std::uint32_t> written) {
    value(std::uint64_t{written.size()});
    bytes(std::as_bytes(written));
  }
  template <class Options>
  void options(const Options& set) {
    Options::describe(
        set, [this](std::string_view, const auto& each, std::string_view) { this->value(each); });
  }
  void finish() {
    hash();
    out_->flush();
    if (!*out_) {
      throw usage_error(
          "the checkpoint could not be written. Fix: free disk space, or name another file");
    }
  }

 private:
  void hash() {
    const std::uint64_t sum = hash_.value();
    out_->write(reinterpret_cast<const char*>(&sum), sizeof sum);
  }

  std::ostream* out_;
  running_hash hash_;
};

class checkpoint_reader {
 public:
  /// Throws usage_error if nothing can be read, as from a file that does not exist.
  explicit checkpoint_reader(std::istream& in) : in_(&in) {
    if (!in) {
      throw usage_error(
          "the checkpoint cannot be read. Fix: open a file that exists, and read it from its "
          "beginning");
    }
  }

  void bytes(std::span<std::byte> read) {
    take(read);
    hash_.feed(read);
  }
  template <class T>
  T value() {
    T read{};
    bytes(std::as_writable_bytes(std::span(&read, 1)));
    expect_hash();
    return read;
  }
  std::string text() {
    std::string read(value<std::uint64_t>(), '\0');
    bytes(std::as_writable_bytes(std::span(read)));
    expect_hash();
    return read;
  }
  void floats(std::span<float> read) {
    expect_floats(read.size());
    bytes(std::as_writable_bytes(read));
  }
  /// Throws usage_error unless so many floats follow.
  void expect_floats(std::uint64_t count) {
    if (value<std::uint64_t>() != count) {
      throw usage_error(
          "the checkpoint holds state of another size. Fix: use the strategy, optimizer and number "
          "of ranks that it was saved with");
    }
  }
  std::vector<std::uint32_t> numbers() {
    std::vector<std::uint32_t> read(value<std::uint64_t>());
    bytes(std::as_writable_bytes(std::span(read)));
    return read;
  }
  /// Reads options into `set`. Returns whether they equal what `set` held before.
  template <class Options>
  bool options(Options& set) {
    bool same = true;
    Options::describe(set, [&](std::string_view, auto& each, std::string_view) {
      const auto before = std::exchange(each, value<std::remove_reference_t<decltype(each)>>());
      same = same && before == each;
    });
    return same;
  }
  void expect_hash() {
    std::uint64_t sum = 0;
    take(std::as_writable_bytes(std::span(&sum, 1)));
    if (sum != hash_.value()) {
      throw usage_error("the checkpoint is damaged. Fix: use an earlier one");
    }
  }

 private:
  void take(std::span<std::byte> read) {
    in_->read(reinterpret_cast<char*>(read.data()), static_cast<std::streamsize>(read.size()));
    if (static_cast<std::size_t>(in_->gcount()) != read.size()) {
      throw usage_error("the checkpoint is cut short. Fix: use an earlier one");
    }
  }

  std::istream* in_;
  running_hash hash_;
};

/// Hash of what orders of launches and fragments of a model depend on: chunks, which of them a
/// bucket holds and may share a launch, and the options of the fusion and the schedule.
template <class Engine>
std::uint64_t hash_of_launches(const Engine& engine) {
  running_hash hash;
  hash.feed(hash_of_owners(engine.planned()));
  for (const chunk& each : engine.planned().chunks) {
    hash.feed(std::uint64_t{each.bucket});
    hash.feed(std::uint64_t{each.kind});
  }
  settings options;
  options.add_values("fusion", engine.asked().fusion);
  options.add_values("schedule", engine.asked().schedule);
  const std::string lines = std::move(options).lines();
  hash.feed(std::as_bytes(std::span(lines)));
  return hash.value();
}
inline bool remember_something(const std::vector<std::vector<std::vector<float>>>& ranks) {
  return loops::any_of(ranks, [](const auto& its) {
    return loops::any_of(its, [](const auto& each) { return !each.empty(); });
  });
}

inline void expect(std::string_view found, std::string_view wanted, std::string_view what) {
  if (found != wanted) {
    throw usage_error("the checkpoint was saved with another " + std::string(what) + ": " +
                      std::string(found) + " instead of " + std::string(wanted) +
                      ". Fix: use the one that it was saved with");
  }
}

/// The head of a checkpoint: the strategy, the number of ranks, the rank that wrote it, and its
/// step.
struct checkpoint_head {
  std::string strategy;
  std::int64_t ranks = 0;
  std::int64_t rank = 0;
  std::uint64_t steps = 0;
};

inline void write_head(checkpoint_writer& file, const checkpoint_head& head) {
  file.bytes(std::as_bytes(std::span(checkpoint_magic)));
  file.text(head.strategy);
  file.value(head.ranks);
  file.value(head.rank);
  file.value(head.steps);
}
inline checkpoint_head read_head(checkpoint_reader& file) {
  magic begins{};
  file.bytes(std::as_writable_bytes(std::span(begins)));
  if (begins != checkpoint_magic) {
    throw usage_error(
        "this file is not a checkpoint of this version of tutti. Fix: name a file that its `save` "
        "wrote");
  }
  checkpoint_head head;
  head.strategy = file.text();
  head.ranks = file.value<std::int64_t>();
  head.rank = file.value<std::int64_t>();
  head.steps = file.value<std::uint64_t>();
  return head;
}

/// Waits until nothing of this rank is in flight and, where launches complete alone, until every
/// worker has come to this call. Throws usage_error in the middle of a step, when some tensor lacks
/// passes of it.
template <class Engine>
void expect_between_steps(Engine& engine) {
  engine.drain();
  if (engine.is_in_a_step()) {
    throw usage_error(
        "a checkpoint cannot be saved or loaded in the middle of a step. Fix: do so where every "
        "tensor has been ready run.accumulation times");
  }
  engine.meet();
}

/// Checks that the files of all workers are of one step. If not, every worker throws the same
/// sentence. `own` is the step of this worker's file.
template <class Engine>
void expect_one_step(Engine& engine, std::uint64_t own) {
  std::vector<double> steps(static_cast<std::size_t>(engine.workers()));
  // All other workers contribute 0 in this place, so that its mean over the workers becomes `own`.
  steps[static_cast<std::size_t>(engine.worker())] = static_cast<double>(own) * engine.workers();
  engine.average(steps);
  for (std::size_t rank = 1; rank < steps.size(); ++rank) {
    if (steps[rank] != steps[0]) {
      throw usage_error(sentence({"rank 0's checkpoint is from step ",
                                  static_cast<std::uint64_t>(steps[0]), ", but rank ", rank,
                                  "'s is from step ", static_cast<std::uint64_t>(steps[rank]),
                                  ". Fix: give all ranks files of one step"}));
    }
  }
}

}  // namespace detail

/// Writes everything that this rank needs to go on as if it had never stopped: parameters,
/// residuals, momenta, the optimizer's values, the step and, under a coordination that learns one,
/// the order of launches. Every worker must call it between the same two steps, each with a stream
/// of its own. Worker 0's stream also holds the servers' state. Under an architecture whose
/// launches complete alone, all workers wait for each other before and after. Nowhere does a return
/// say that another rank's file is complete: call `average(0)` before you rely on it.
/// Throws usage_error if `out` has failed; training can go on without the checkpoint.
/// Cost: waits for all tensors, then writes about two to four times the model's bytes.
template <class Engine>
void save(Engine& engine, std::ostream& out) {
  const auto due = engine.begin_collective("save()");
  detail::expect_between_steps(engine);
  auto& queue = engine.world().queue();
  detail::checkpoint_writer file(out);
  detail::write_head(file, {std::string(type_name<typename Engine::strategy>()),
                            engine.world().size(), engine.worker(), engine.steps()});
  file.text(type_name<std::remove_cvref_t<decltype(engine.values())>>());
  file.value(hash_of_order(engine.planned()));
  file.value(hash_of_owners(engine.planned()));
  file.value(detail::hash_of_launches(engine));
  file.options(engine.asked().architecture);
  file.options(engine.asked().compression);
  file.options(engine.asked().run);
  file.value(std::uint64_t{engine.tensors().size()});
  for (const auto& each : engine.tensors()) {
    file.text(each.name);
    file.floats(host_view(queue, each.parameter));
  }
  file.options(engine.values());
  file.value(engine.rate_of_residuals());
  const auto memories = engine.memories();
  file.value(floats_in(memories));
  for (const std::span<float> each : memories) {
    file.bytes(std::as_bytes(std::span<const float>(host_view(queue, each))));
  }
  if constexpr (Engine::learns) {
    const std::uint32_t is_learning[] = {no_chunk};
    file.numbers(engine.learned_order().empty() ? std::span<const std::uint32_t>(is_learning)
                                                : engine.learned_order());
  }
  const auto others = engine.collect_from_others();
  file.value(std::uint64_t{others.size()});
  for (const auto& rank : others) {
    for (const auto& each : rank) {
      file.floats(each);
    }
  }
  engine.meet();  // first, so that a worker whose file cannot be written keeps none waiting
  file.finish();
}

/// Returns the step of the checkpoint that `in` begins with, by which a caller finds the files that
/// belong to one set. Throws usage_error if `in` begins with no checkpoint of this version.
inline std::uint64_t step_of_checkpoint(std::istream& in) {
  detail::checkpoint_reader file(in);
  return detail::read_head(file).steps;
}

/// Continues from what `save` wrote. Every worker must call it, each with the file that the rank of
/// its number wrote, all of one step where workers keep a common step. The strategy, model,
/// optimizer and number of ranks must be those of the saved run. So must the fusion and the
/// partition, where each rank updates a part of every chunk or remembers the residuals of the means
/// that it encodes, and where servers remember something. Any other option may differ as after
/// `engine::replan`, and is refused where `replan` refuses it. Under another fusion, partition or
/// schedule an order of launches is learned again.
/// Throws usage_error, which names the difference, if the file is of another run or damaged. By
/// then it may have overwritten memory of this engine, and nothing else. The engine must not be
/// used any more. The other workers wait for this one until its engine ends, at most for a
/// deadline, or, to hear the error's words, until the error is handed to `engine.fail`.
template <class Engine>
void load(Engine& engine, std::istream& in) {
  const auto due = engine.begin_collective("load()");
  detail::expect_between_steps(engine);
  detail::checkpoint_reader file(in);
  const detail::checkpoint_head head = detail::read_head(file);
  detail::expect(head.strategy, type_name<typename Engine::strategy>(), "strategy");
  if (head.ranks != engine.world().size()) {
    throw usage_error(
        sentence({"the checkpoint was written by ", head.ranks, " ranks and is read by ",
                  engine.world().size(), ". Fix: start as many ranks as wrote it"}));
  }
  if (head.rank != engine.worker()) {
    throw usage_error(
        sentence({"the checkpoint was written by rank ", head.rank, " and is read by rank ",
                  engine.worker(), ". Fix: give each rank the file it wrote"}));
  }
  auto values = engine.values();
  detail::expect(file.text(), type_name<decltype(values)>(), "optimizer");
  const auto order = file.template value<std::uint64_t>();
  const auto owners = file.template value<std::uint64_t>();
  const bool same_launches =
      file.template value<std::uint64_t>() == detail::hash_of_launches(engine);
  auto was = engine.asked();
  const bool same_architecture = file.options(was.architecture);
  const bool same_compression = file.options(was.compression);
  file.options(was.run);
  const auto tensors = file.template value<std::uint64_t>();
  if (tensors != engine.tensors().size()) {
    throw usage_error(
        sentence({"the checkpoint was saved with another model: ", tensors, " tensors instead of ",
                  engine.tensors().size(), ". Fix: use the one that it was saved with"}));
  }
  expect_same_places(engine, order, owners);
  if constexpr (!facts::keeps_no_step<typename Engine::architecture>) {
    detail::expect_one_step(engine, head.steps);
  }
  if (!same_launches || !same_architecture || !same_compression) {
    expect_goes_on<typename Engine::architecture, typename Engine::compression>(was, engine.asked(),
                                                                                head.steps);
  }
  for (const auto& each : engine.tensors()) {
    detail::expect(file.text(), each.name, "model");
    const auto elements = file.template value<std::uint64_t>();
    if (elements != each.parameter.size()) {
      throw usage_error(sentence({"the checkpoint was saved with another model: ", each.name,
                                  " of ", elements, " elements instead of ", each.parameter.size(),
                                  ". Fix: use the one that it was saved with"}));
    }
    fill_from_host(engine.world().queue(), each.parameter,
                   [&file](std::span<float> into) { file.bytes(std::as_writable_bytes(into)); });
  }
  file.options(values);
  const auto rate_of_residuals = file.template value<double>();
  // Kept for later: `resume` first lets policies take copies of the parameters read above, and only
  // then restores what they remember.
  std::vector<std::vector<float>> memories;
  const auto places = engine.memories();
  file.expect_floats(floats_in(places));
  for (const std::span<float> each : places) {
    memories.emplace_back(each.size());
    file.bytes(std::as_writable_bytes(std::span(memories.back())));
  }
  follow_gradients<typename Engine::compression>(
      memories.front(),
      change_of_passes<typename Engine::architecture>(was.run, engine.asked().run));
  std::vector<std::uint32_t> learned_order;
  if constexpr (Engine::learns) {
    learned_order = file.numbers();
    if (learned_order.empty()) {
      throw usage_error(sentence({"the checkpoint is from step ", head.steps,
                                  " but holds no learned order. Fix: use one that `save` wrote"}));
    }
    // If the order was still being learned, or is of other launches, it is learned again.
    if (learned_order.front() == no_chunk || !same_launches) {
      learned_order.clear();
    }
  }
  auto others = engine.collect_from_others();
  if (const auto servers = file.template value<std::uint64_t>(); servers != others.size()) {
    throw usage_error(
        sentence({"the checkpoint holds the memory of ", servers, " servers, but this run has ",
                  others.size(), ". Fix: start as many servers"}));
  }
  if (detail::remember_something(others) && owners != hash_of_owners(engine.planned())) {
    throw usage_error(
        "the checkpoint's servers hold memory of other chunks. Fix: load it with the options that "
        "it was saved with, then replan");
  }
  for (auto& rank : others) {
    for (auto& each : rank) {
      file.floats(each);
    }
  }
  file.expect_hash();
  if constexpr (Engine::learns) {
    if (!learned_order.empty()) {
      engine.resume_by(learned_order);
    }
  }
  engine.resume(head.steps, values, rate_of_residuals, others, memories);
  engine.meet();
}

}  // namespace tutti
