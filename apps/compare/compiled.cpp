#include "compare/compiled.hpp"

namespace tutti {

template class engine_base<compare::any_world>;
template class driver<compare::any_world, engine_base<compare::any_world>>;
template class failure<compare::any_world>;
template class services<compare::any_world>;
template class waiting<compare::any_world>;
template class watch<compare::any_world>;
template class observer<agenda_log, compare::any_world>;

}  // namespace tutti
