#pragma once

// Everything a training loop needs beside its strategy and its transport.
#include "tutti/base/error.hpp"
#include "tutti/base/tensor.hpp"
#include "tutti/base/units.hpp"
#include "tutti/core/compose.hpp"
#include "tutti/core/engine.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/optimizer/adam.hpp"
#include "tutti/optimizer/none.hpp"
#include "tutti/optimizer/sgd.hpp"
#include "tutti/transport/in_process.hpp"
