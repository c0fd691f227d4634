#pragma once

#include <array>
#include <cstdint>

namespace tutti {

/// The state of a chunk on one rank.
enum class chunk_state : std::uint32_t {
  waits_for_gradient,
  ready,
  started,
  finished,
  held,  ///< a server holds it back until other workers have pushed, as a staleness bound demands
};

/// A chunk in one step.
struct chunk_step {
  std::uint32_t chunk{};
  std::uint64_t step{};

  bool operator==(const chunk_step&) const = default;
};

/// Stands in place of a chunk when a rank waits for something else.
inline constexpr std::uint32_t no_chunk = 0xffffffff;

/// A message on the control channel. It is sent as bytes, since all ranks run one program.
struct control_message {
  enum class kind : std::uint32_t {
    stop,      ///< from a rank to itself: stop listening
    question,  ///< what is the chunk `about` doing on your rank?
    answer,    ///< `state`, the tensor that the chunk waits for, and how far the rank has come
    excuse,    ///< rank `absent` has ended in good order; said before an answer, if known
  };

  kind what{};
  std::uint32_t number{};  ///< of the question; an answer repeats it
  chunk_step about{};
  chunk_state state{};
  std::uint32_t tensor{};
  std::uint64_t handed_in{};  ///< gradients given to `ready` so far, counting every pass
  std::uint64_t averages{};   ///< calls of `average` and `replan` begun so far
  std::uint32_t waiting{};    ///< threads that wait inside the engine
  std::uint32_t absent{};
  std::array<char, 12> call{};  ///< the call of all workers that the rank is in, such as average()
};

}  // namespace tutti
