#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tutti {

/// What a chunk is doing on one rank.
enum class chunk_state : std::uint32_t { waits_for_gradient, ready, started, finished };

/// A message on the control channel. Trivially copyable: ranks run one program.
struct control_message {
  enum class kind : std::uint32_t {
    stop,      ///< to oneself: stop listening
    question,  ///< what is `chunk` doing there, in step `step`?
    answer,    ///< `state`, and the tensor it waits for
    verdict,   ///< `text`: why nobody can go on
  };

  kind what{};
  std::uint32_t chunk{};
  std::uint64_t step{};
  chunk_state state{};
  std::uint32_t tensor{};
  std::array<char, 480> text{};

  void say(std::string_view sentence) {
    const std::size_t length = std::min(sentence.size(), text.size() - 1);
    std::copy_n(sentence.begin(), length, text.begin());
    text[length] = '\0';
  }
  std::string_view said() const { return text.data(); }
};

}  // namespace tutti
