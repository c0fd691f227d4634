#pragma once

/// The version of these headers and of the package. CMake reads it from this line.
#define TUTTI_VERSION "0.1.0"
