#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <span>
#include <string>
#include <string_view>
#include <torch/csrc/utils/pybind.h>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/adapter/torch.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/base/sentence.hpp"
#include "tutti/core/engine_options.hpp"
#include "tutti/transport/mpi.hpp"

/// The C++ part of `tutti_torch.DataParallel`: one strategy, compiled into a module of Python.
namespace tutti_torch {

namespace py = pybind11;

/// Returns the engine options with the values that `given` names, as "fusion.bytes". Throws
/// tutti::usage_error for an unknown name or a value of the wrong type.
template <class Strategy>
tutti::engine_options<Strategy> options_from(py::dict given) {
  tutti::engine_options<Strategy> set;
  const auto take = [&given](const std::string& name, auto& value) {
    if (!given.contains(name.c_str())) {
      return;
    }
    using wanted = std::remove_reference_t<decltype(value)>;
    const py::object mine = given[name.c_str()];
    given.attr("pop")(name);
    const std::string its = py::str(mine);
    if constexpr (std::is_enum_v<wanted>) {
      const auto known = names(value);
      for (std::size_t i = 0; i < known.size(); ++i) {
        if (its == known[i]) {
          value = static_cast<wanted>(i);
          return;
        }
      }
      std::string all;
      for (const auto& each : known) {
        tutti::add_to_list(all, each);
      }
      throw tutti::usage_error(name + " cannot be " + its + ". Fix: one of " + all);
    } else {
      try {
        if (py::isinstance<py::bool_>(mine)) {
          throw py::cast_error();  // because Python takes True for 1
        }
        value = mine.cast<wanted>();
      } catch (const py::cast_error&) {
        throw tutti::usage_error(name + " cannot be " + its + ". Fix: " +
                                 std::string(py::str(py::cast(value))) + ", for example");
      }
    }
  };
  take("run.deadline", set.run.deadline);
  std::string known = "run.deadline";
  tutti::policy_options<tutti::strategy_of<Strategy>>::each(
      set, [&](std::string_view role, auto& own) {
        std::remove_cvref_t<decltype(own)>::describe(
            own, [&](std::string_view option, auto& value, std::string_view) {
              const auto name = std::string(role) + "." + std::string(option);
              take(name, value);
              tutti::add_to_list(known, name);
            });
      });
  if (!given.empty()) {
    throw tutti::usage_error("this strategy has no option " +
                             std::string(py::str(given.begin()->first)) + ". Fix: one of " + known);
  }
  return set;
}

/// Returns an optimizer with the values that `given` names, as its `describe` does; the others are
/// those of `values`. All values are Python floats, because rank 0 sends its values to all ranks as
/// one tensor. Throws tutti::usage_error if an integer option's value is not whole.
template <class Optimizer>
Optimizer optimizer_from(const py::dict& given, Optimizer values = {}) {
  Optimizer::describe(values, [&given](std::string_view name, auto& value, std::string_view) {
    if (const py::str key(std::string{name}); given.contains(key)) {
      using wanted = std::remove_reference_t<decltype(value)>;
      const auto its = given[key].cast<double>();
      if constexpr (std::is_integral_v<wanted>) {
        // Above it, a double cannot represent every whole number.
        constexpr double most = 1ULL << 53;
        if (!(its >= 0 && its < most && its == std::floor(its))) {
          throw tutti::usage_error(std::string(name) + " cannot be " + std::to_string(its) +
                                   ". Fix: a whole number, 0 or more");
        }
      }
      value = static_cast<wanted>(its);
    }
  });
  return values;
}

/// The transports of one model, and the engine that trains it over them.
template <class Transports, class Strategy, class Optimizer>
class trainer {
 public:
  using data_parallel =
      tutti::adapter::data_parallel<Strategy, typename Transports::transport, Optimizer>;

  trainer(std::vector<tutti::adapter::named_parameter> parameters,
          tutti::engine_options<Strategy> set, tutti::adapter::unused_parameters unused,
          const Optimizer& values)
      : transports_(parameters),
        model_(transports_.world(), transports_.beside(), std::move(parameters), set, unused,
               values) {}

  data_parallel& model() { return model_; }

 private:
  Transports transports_;
  data_parallel model_;
};

/// Deletes an object that Python held, with the interpreter's lock released: the deletion may wait
/// for other ranks, and other threads of Python must run meanwhile.
struct ends_released {
  template <class Held>
  void operator()(Held* held) const {
    const py::gil_scoped_release others_run;
    delete held;
  }
};
template <class Held>
using held_by_python = std::unique_ptr<Held, ends_released>;

/// Returns the number of steps, and what the policies remember as tensors in host memory. Throws
/// tutti::usage_error if the strategy has servers.
template <class Trainer>
std::pair<std::uint64_t, std::vector<at::Tensor>> saved(Trainer& self) {
  auto& engine = self.model().trained_by();
  if (engine.servers() > 0) {
    throw tutti::usage_error(
        "this strategy's servers hold state that no worker can save. Fix: save only "
        "model.module");
  }
  std::vector<at::Tensor> all;
  engine.drain();
  for (const std::span<float> each : engine.memories()) {
    auto values = tutti::host_view(engine.world().queue(), each);
    all.push_back(
        at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kFloat)
            .clone());
  }
  return {engine.steps(), all};
}

/// Restores what `saved` returned, for losses multiplied by `scale` and a strategy that ran under
/// the options `was`. Throws tutti::usage_error if it does not fit this strategy, model and
/// optimizer.
template <class Strategy, class Trainer>
void resume(Trainer& self, std::uint64_t steps, const std::vector<at::Tensor>& memories,
            float scale, const tutti::engine_options<Strategy>& was) {
  auto& engine = self.model().trained_by();
  using engine_type = std::remove_reference_t<decltype(engine)>;
  engine.drain();
  tutti::expect_goes_on<typename engine_type::architecture, typename engine_type::compression>(
      was, engine.asked(), steps);
  tutti::memories_of_rank mine;
  for (const at::Tensor& each : memories) {
    const at::Tensor dense = each.cpu().contiguous();
    const float* begin = dense.data_ptr<float>();
    mine.emplace_back(begin, begin + dense.numel());
  }
  const auto here = engine.memories();
  bool fits = mine.size() == here.size();
  for (std::size_t i = 0; fits && i < mine.size(); ++i) {
    fits = mine[i].size() == here[i].size();
  }
  if (!fits) {
    throw tutti::usage_error(
        "this state is of another strategy, model or optimizer. Fix: load one that the same ones "
        "saved, in a job of as many ranks");
  }
  if (scale != self.model().scale()) {
    self.model().scaled_by(scale);
  }
  engine.resume(steps, engine.values(), engine.rate_of_residuals(), {}, mine);
}

/// Fills a Python module with `Strategy` over these transports, and with an optimizer of tutti's or
/// none. Functions that may wait release the interpreter's lock, so that other threads of Python
/// run.
template <
    class Transports, class Strategy,
    class Optimizer = tutti::adapter::left_to_the_user<Strategy, typename Transports::transport>>
void bind(py::module_& module) {
  using trainer = tutti_torch::trainer<Transports, Strategy, Optimizer>;
  using tutti::adapter::gradients;
  using tutti::adapter::named_parameter;
  using tutti::adapter::unused_parameters;
  using released = py::call_guard<py::gil_scoped_release>;

  using session = tutti::transport::detail::mpi_session;
  py::class_<session, held_by_python<session>>(module, "Session", py::module_local())
      .def(py::init<>(), released())
      .def_property_readonly("processes", [](const session& self) { return self.processes(); });
  py::class_<trainer, held_by_python<trainer>>(module, "Trainer", py::module_local())
      .def(py::init([](const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                       const py::dict& options, bool find_unused, const py::dict& values) {
        std::vector<named_parameter> all;
        for (const auto& [name, value] : parameters) {
          all.push_back({name, value});
        }
        const auto set = options_from<Strategy>(options.attr("copy")());
        const auto begins_with =
            optimizer_from<Optimizer>(values, trainer::data_parallel::until_scaled());
        const py::gil_scoped_release others_run;
        return held_by_python<trainer>(
            new trainer(std::move(all), set,
                        find_unused ? unused_parameters::left_alone : unused_parameters::as_zeros,
                        begins_with));
      }))
      .def(
          "forward",
          [](trainer& self, bool averaged) {
            self.model().forward(averaged ? gradients::averaged : gradients::added_up);
          },
          released())
      .def(
          "begin", [](trainer& self) { self.model().begin(); }, released())
      .def("is_to_begin", [](trainer& self) { return self.model().is_to_begin(); })
      .def(
          "ready", [](trainer& self, std::size_t which) { self.model().ready(which); }, released())
      .def(
          "take_part", [](trainer& self) { self.model().take_part(); }, released())
      .def(
          "wait", [](trainer& self) { self.model().wait(); }, released())
      .def(
          "finish_updates", [](trainer& self) { self.model().finish_updates(); }, released())
      .def(
          "wait",
          [](trainer& self, const std::vector<std::size_t>& parameters) {
            if constexpr (trainer::data_parallel::updates) {
              for (const std::size_t which : parameters) {
                self.model().wait(which);
              }
            }
          },
          released())
      .def("change",
           [](trainer& self, const py::dict& values) {
             self.model().change(optimizer_from<Optimizer>(values));
           })
      .def(
          "scaled_by", [](trainer& self, float scale) { self.model().scaled_by(scale); },
          released())
      .def("replan",
           [](trainer& self, const py::dict& options) {
             const auto set = options_from<Strategy>(options.attr("copy")());
             const py::gil_scoped_release others_run;
             self.model().replan(set);
           })
      .def_property_readonly("scale", [](trainer& self) { return self.model().scale(); })
      .def("show_on_its_way",
           [](trainer& self, std::size_t which, at::Tensor what) {
             self.model().show_on_its_way(which, std::move(what));
           })
      .def(
          "broadcast",
          [](trainer& self, std::vector<at::Tensor> values, int root) {
            self.model().broadcast(std::move(values), root);
          },
          released())
      .def(
          "largest",
          [](trainer& self, std::vector<std::uint8_t> flags) {
            self.model().largest(flags);
            return flags;
          },
          released())
      .def(
          "serve", [](trainer& self) { self.model().serve(); }, released())
      .def(
          "fail",
          [](trainer& self, const std::string& why) {
            self.model().fail(std::make_exception_ptr(tutti::communication_error(why)));
          },
          released())
      .def("saved", &saved<trainer>, released())
      .def("resume",
           [](trainer& self, std::uint64_t steps, const std::vector<at::Tensor>& memories,
              float scale, const py::dict& options) {
             const auto was = options_from<Strategy>(options.attr("copy")());
             const py::gil_scoped_release others_run;
             resume<Strategy>(self, steps, memories, scale, was);
           })
      .def("end_step", [](trainer& self) { self.model().end_step(); })
      .def_property_readonly("passes", [](trainer& self) { return self.model().passes(); })
      .def_property_readonly("rank", [](trainer& self) { return self.model().rank(); })
      .def_property_readonly("workers", [](trainer& self) { return self.model().workers(); })
      .def_property_readonly("serves", [](trainer& self) { return self.model().serves(); });
}

}  // namespace tutti_torch
