// Compiled beside the README's loop into one program. A header that defines something that is not
// inline breaks the link.
#include <tutti/strategies.hpp>
#include <tutti/transport/any_transport.hpp>
#include <tutti/transport/recording.hpp>
#include <tutti/transport/simulated.hpp>
#include <tutti/tutti.hpp>
