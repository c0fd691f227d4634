#pragma once

/// The version of these headers, as CMake's project() has it.
#define TUTTI_VERSION "0.1.0"
