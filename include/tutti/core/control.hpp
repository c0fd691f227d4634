#pragma once

#include <cstdint>

namespace tutti {

/// What a chunk is doing on one rank.
enum class chunk_state : std::uint32_t {
  waits_for_gradient,
  ready,
  started,
  finished,
  held,  ///< by a server, until workers have pushed whom its architecture's bound is about
};

/// A chunk in one of its steps.
struct chunk_step {
  std::uint32_t chunk{};
  std::uint64_t step{};

  bool operator==(const chunk_step&) const = default;
};

/// No chunk: whoever asks waits for something else.
inline constexpr std::uint32_t no_chunk = 0xffffffff;

/// A message on the control channel. Trivially copyable: ranks run one program.
struct control_message {
  enum class kind : std::uint32_t {
    stop,      ///< to oneself: stop listening
    question,  ///< what is `about` doing there?
    answer,    ///< `state`, and the tensor it waits for; what this rank has done so far
    excuse,    ///< rank `absent` has ended in good order; before an answer, by whoever serves
  };

  kind what{};
  std::uint32_t number{};  ///< of the question; its answer has the same
  chunk_step about{};
  chunk_state state{};
  std::uint32_t tensor{};
  std::uint64_t handed_in{};  ///< gradients, in every pass
  std::uint64_t averages{};   ///< begun
  std::uint32_t waiting{};    ///< threads inside the engine
  std::uint32_t absent{};
};

}  // namespace tutti
