// Strategies between real processes.
#include "support/mpi_world.hpp"
#include "support/strategy_laws.hpp"
#include "tutti/collective/native.hpp"
#include "tutti/transport/mpi.hpp"

namespace tutti::test {

using on_processes = on_processes_of<inline_queue>;

struct negotiated_by_priority
    : listed::with_defaults<listed::in_rank_order<fusion::when_ready, coordination::negotiated,
                                                  partition::into, schedule::by_priority>> {
  static std::vector<options> variants() {
    return {{.fusion = {.bytes = 100'000, .cycle = 1e-4},
             .partition = {.bytes = 50'000},
             .coordination = {.by = coordination::identity::name, .cache = 3}}};
  }
};
/// MPI's own all-reduce.
template <class... Policies>
using native =
    listed::with_defaults<compose<architecture::all_reduce<collective::native>, Policies...>>;

template <class Listed>
using between_processes = strategy_on<Listed, on_processes>;
using others =
    testing::Types<between_processes<listed::WFBP>, between_processes<negotiated_by_priority>,
                   between_processes<listed::gathered_as_learned>, between_processes<native<>>,
                   between_processes<native<schedule::in_order>>>;

static_assert(strategies_in<a_few_dense_strategies_on<on_processes>> == 4);
INSTANTIATE_TYPED_TEST_SUITE_P(Few, StrategyLaw, a_few_dense_strategies_on<on_processes>);
INSTANTIATE_TYPED_TEST_SUITE_P(Others, StrategyLaw, others);

}  // namespace tutti::test

int main(int argc, char** argv) { return tutti::test::run_tests_of_processes(argc, argv); }
