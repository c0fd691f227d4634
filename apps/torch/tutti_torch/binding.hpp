#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <string>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tutti/adapter/torch_model.hpp"
#include "tutti/base/error.hpp"
#include "tutti/transport/mpi/session.hpp"
#include "tutti_torch/trainer.hpp"

namespace tutti_torch {

namespace py = pybind11;

/// Deletes an object that Python held, with the interpreter's lock released: the deletion may wait
/// for other ranks, and other threads of Python must run meanwhile. A forked process deletes
/// nothing, because its parent's ranks are not its own.
class ends_released {
 public:
  template <class Held>
  void operator()(Held* held) const {
    const py::gil_scoped_release others_run;
    if (getpid() == process_) {
      delete held;
    }
  }

 private:
  pid_t process_ = getpid();
};
template <class Held>
using held_by_python = std::unique_ptr<Held, ends_released>;

/// A model that a compiled strategy trains. MPI runs for as long as it lives: a strategy's library
/// does not know which other libraries of this process use MPI.
template <class Queue>
class model_of_python : private tutti::transport::detail::mpi_session,
                        public tutti::adapter::torch_model<Queue> {
  using base = tutti::adapter::torch_model<Queue>;

 public:
  model_of_python(std::unique_ptr<trainer<Queue>> trained_by,
                  std::vector<tutti::adapter::named_parameter> parameters,
                  tutti::adapter::unused_parameters unused)
      : base(std::move(trained_by), std::move(parameters), unused) {}

  trainer<Queue>& trained_by() { return static_cast<trainer<Queue>&>(base::trained_by()); }
};

/// Fills a Python module with models whose memory `Queue` works on. Functions that may wait release
/// the interpreter's lock, so that other threads of Python run.
template <class Queue>
void bind(py::module_& module) {
  using model = model_of_python<Queue>;
  using tutti::adapter::gradients;
  using tutti::adapter::named_parameter;
  using tutti::adapter::unused_parameters;
  using released = py::call_guard<py::gil_scoped_release>;

  using session = tutti::transport::detail::mpi_session;
  py::class_<session, held_by_python<session>>(module, "Session", py::module_local())
      .def(py::init<>(), released())
      .def_property_readonly("processes", [](const session& self) { return self.processes(); });
  py::class_<model, held_by_python<model>>(module, "Model", py::module_local())
      .def(py::init([](std::uintptr_t strategy,
                       const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                       const named_options& options, bool find_unused, const named_values& values) {
        std::vector<named_parameter> all;
        request asked{options, values};
        for (const auto& [name, value] : parameters) {
          all.push_back({name, value});
        }
        for (const auto& [name, value] : parameters) {
          if (value.is_cuda()) {
            asked.device = value.get_device();
            break;
          }
        }
        const py::gil_scoped_release others_run;
        auto* const made = reinterpret_cast<make_trainer<Queue>*>(strategy);
        return held_by_python<model>(
            new model(std::unique_ptr<trainer<Queue>>(made(asked)), std::move(all),
                      find_unused ? unused_parameters::left_alone : unused_parameters::as_zeros));
      }))
      .def(
          "forward",
          [](model& self, bool averaged) {
            self.forward(averaged ? gradients::averaged : gradients::added_up);
          },
          released())
      .def("begin", &model::begin, released())
      .def("is_to_begin", &model::is_to_begin)
      .def("ready", &model::ready, released())
      .def("take_part", &model::take_part, released())
      .def(
          "wait", [](model& self) { self.wait(); }, released())
      .def("finish_updates", &model::finish_updates, released())
      .def(
          "wait",
          [](model& self, const std::vector<std::size_t>& parameters) {
            for (const std::size_t which : parameters) {
              self.wait(which);
            }
          },
          released())
      .def("change",
           [](model& self, const named_values& values) { self.trained_by().change(values); })
      .def("scaled_by", &model::scaled_by, released())
      .def(
          "replan",
          [](model& self, const named_options& options) {
            self.expect_between_passes();
            self.trained_by().replan(options);
          },
          released())
      .def_property_readonly("scale", &model::scale)
      .def("show_on_its_way", &model::show_on_its_way)
      .def("is_same_on_all", &model::is_same_on_all, released())
      .def("expect_alike", &model::expect_alike, released())
      .def("broadcast", &model::broadcast, released())
      .def(
          "largest",
          [](model& self, std::vector<std::uint8_t> flags) {
            self.largest(flags);
            return flags;
          },
          released())
      .def("serve", &model::serve, released())
      .def(
          "fail",
          [](model& self, const std::string& why) {
            self.fail(std::make_exception_ptr(tutti::communication_error(why)));
          },
          released())
      .def(
          "saved",
          [](model& self) {
            std::vector<at::Tensor> all;
            for (std::vector<float>& each : self.trained_by().saved()) {
              all.push_back(
                  at::from_blob(each.data(), {static_cast<std::int64_t>(each.size())}, at::kFloat)
                      .clone());
            }
            return std::pair(self.trained_by().steps(), all);
          },
          released())
      .def_property_readonly("rate_of_residuals",
                             [](model& self) { return self.trained_by().rate_of_residuals(); })
      .def(
          "resume",
          [](model& self, std::uint64_t steps, const std::vector<at::Tensor>& memories, double rate,
             float scale, const named_options& was) {
            std::vector<std::vector<float>> values;
            for (const at::Tensor& each : memories) {
              const at::Tensor dense = each.cpu().contiguous();
              const float* begin = dense.data_ptr<float>();
              values.emplace_back(begin, begin + dense.numel());
            }
            self.trained_by().resume(steps, values, rate, scale, was);
          },
          released())
      .def("end_step", &model::end_step)
      .def_property_readonly("passes", &model::passes)
      .def_property_readonly("rank", &model::rank)
      .def_property_readonly("workers", &model::workers)
      .def_property_readonly("serves", &model::serves);
}

}  // namespace tutti_torch
