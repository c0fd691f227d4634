#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tutti/base/host_stream.hpp"
#include "tutti/transport/in_process.hpp"
#include "tutti/transport/stream_ordered.hpp"

/// A communication library like NCCL, of which only the declarations are needed.
struct library {
  using queue_type = tutti::host_stream;
  explicit library(tutti::transport::in_process&);
  queue_type& queue();
  void begin_group();
  void send(std::span<const std::byte>, int);
  void receive(std::span<std::byte>, int);
  void end_group();
  void all_reduce(std::span<float>);
  std::string failure();
  void abort();
};

using network = tutti::transport::stream_ordered<library, tutti::transport::in_process>;
