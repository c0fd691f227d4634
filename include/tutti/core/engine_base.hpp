#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/task.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/core/control.hpp"
#include "tutti/core/driver.hpp"
#include "tutti/role/architecture.hpp"
#include "tutti/role/transport.hpp"

namespace tutti {

/// What ranks ask of each other beside chunks.
enum class service : std::uint32_t {
  words = 8,  ///< of another rank's machine, which decides in which order launches start
  farewell,   ///< the sender asks nobody any more
  ended,      ///< nor does anybody
  change,     ///< other values for the optimizer
  collect,
  restore,
  replan,
};

/// An engine without its strategy: all that waiting, the control channel and services ask of it.
/// They are compiled once a transport.
template <class Transport>
class engine_base : public driven {
 public:
  using message_type =
      message<decltype(std::declval<Transport&>().receive_any(channel::service).await_resume())>;

  // ---- waiting

  /// What this rank waits for.
  virtual chunk_step stuck() const = 0;
  /// Ends this rank's part, and every other's, unless the sentence is empty.
  virtual void end_with(const std::string& sentence) = 0;
  /// Looks at the transport's failure.
  virtual void hear_of_failure() = 0;
  virtual const std::vector<tensor>& declared() const = 0;

  // ---- the control channel

  /// Answers for this rank, what the chunk is doing here.
  virtual void describe(const chunk_step& about, control_message& answer) = 0;
  /// The transport's failure, as a coroutine has met it.
  virtual void heard(std::exception_ptr why) = 0;
  /// What a rank that all others wait for has not called.
  virtual std::string_view due_call() const = 0;

  // ---- services

  /// The ranks for which this is true answer whoever asks.
  virtual bool listens_to_all(int rank) const = 0;
  /// What another rank's machine said.
  virtual void hear(int peer, std::span<const std::byte> words) = 0;
  /// A message about a chunk, for the architecture.
  virtual task serve_chunk(message_type asked) = 0;
  /// Other values for the optimizer.
  virtual void take_values(std::span<const std::byte> bytes) = 0;
  /// What its architecture remembers.
  virtual std::vector<std::span<float>> remembered() = 0;
  /// Its architecture goes on from step `steps`.
  virtual void resume_architecture(std::uint64_t steps) = 0;
  /// A worker's question to a rank that serves.
  virtual task converse(int worker, service what) = 0;

  // ---- beginning and end

  /// All ranks declare and set the same, and parameters are rank 0's.
  virtual void begun() = 0;
  /// They disagree, as all ranks find alike.
  virtual void disagreed(std::exception_ptr why) = 0;
  /// No more gradients: ends when every launch has.
  virtual task finish_gradients() = 0;
  /// Ends when nothing is left of what the architecture began.
  virtual task finish_architecture() = 0;
  /// Ends the listening on the control channel.
  virtual task stop_answering() = 0;

 protected:
  ~engine_base() = default;
};

}  // namespace tutti
