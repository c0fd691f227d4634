#pragma once

#include <cstdio>
#include <cstdlib>

/// Checks a promise between tutti's own parts. A broken promise is a bug in tutti, never bad input:
/// the macro prints where it is and aborts before the damage reaches a parameter.
#define TUTTI_ASSERT(condition, sentence)                                                       \
  ((condition) ? void()                                                                         \
               : (std::fprintf(stderr, "tutti: %s:%d: %s (%s)\n", __FILE__, __LINE__, sentence, \
                               #condition),                                                     \
                  std::abort()))
