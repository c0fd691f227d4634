#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "tutti/compression/error_feedback.hpp"
#include "tutti/kernels/arithmetic.hpp"
#include "tutti/role/compression.hpp"

namespace tutti::compression {

/// Error feedback whose residual is in steps of the optimizer and not in gradients: when the
/// learning rate changes from a to b, the residual e becomes e * a / b. The rate is thus inside the
/// residual, as in EF-signSGD. Its p = rate * g + e is `rate` times what is encoded here, and what
/// it sends is `rate` times what is sent here, for every compressor that encodes a multiple of its
/// input as that multiple. An engine rescales in `change`, on workers and on ranks that encode
/// means again, for an optimizer that has a `learning_rate`. A rate of 0 leaves residuals as they
/// are, in steps of the last rate that was not 0.
/// Wire: as error_feedback. Cost: as error_feedback, and a pass over the residual when the rate
/// changes.
/// After: Karimireddy et al., "Error Feedback Fixes SignSGD", ICML 2019; Zheng et al.,
/// "Communication-Efficient Distributed Blockwise Momentum SGD with Error-Feedback", NeurIPS 2019;
/// BytePS, `byteps_ef_type: vanilla`, which reads the rate from the file lr.s before it encodes.
template <encodes_once C>
class rescaled_error_feedback : public error_feedback<C> {
 public:
  using error_feedback<C>::error_feedback;

  constexpr auto relay() const {
    return this->answered_by([](const auto& its) {
      return rescaled_error_feedback<std::remove_cvref_t<decltype(its)>>(its);
    });
  }

  template <class Queue>
  void rescale(Queue& queue, const chunk_context& where, std::size_t elements, float factor) const {
    kernels::scale(queue, where.row(0, elements), factor);
  }
};

}  // namespace tutti::compression
