#pragma once

#include <cstdio>
#include <cstdlib>

/// A promise between tutti's own parts. A broken one is a bug in tutti, never bad input: it says
/// where and stops the process before the damage reaches a parameter.
#define TUTTI_ASSERT(condition, sentence)                                                       \
  ((condition) ? void()                                                                         \
               : (std::fprintf(stderr, "tutti: %s:%d: %s (%s)\n", __FILE__, __LINE__, sentence, \
                               #condition),                                                     \
                  std::abort()))
