#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "tutti/base/error.hpp"

namespace tutti::strategies {

/// Returns the name of the strategy that an MXNet kvstore of this type is. As in MXNet, a type is
/// known by what it contains, in capitals or not. `dist` with `_async` is MXNetDistAsync, and any
/// other `dist` is MXNetDistSync. Without `dist`, `nccl`, `device` and `local` are WFBPUnlimited, a
/// sum for each tensor, which is made where the transport says. `p3`, in MXNet the van under a
/// synchronous `dist`, is P3. `horovod` and `byteps`, as whole names, are those systems. Throws
/// usage_error for a p3 that is asynchronous, as MXNet does, and for any other type, which MXNet
/// takes for `local`.
inline std::string_view of_kvstore(std::string_view type) {
  std::string lower(type);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  const auto has = [&lower](std::string_view part) {
    return lower.find(part) != std::string::npos;
  };
  if (lower == "horovod") {
    return "Horovod";
  }
  if (lower == "byteps") {
    return "BytePS";
  }
  if (has("p3") && has("async")) {
    throw usage_error(
        sentence({"kvstore '", type,
                  "' is contradictory: p3 is always synchronous. Fix: use p3 or dist_async"}));
  }
  if (has("p3")) {
    return "P3";
  }
  if (has("dist")) {
    return has("_async") ? "MXNetDistAsync" : "MXNetDistSync";
  }
  if (has("nccl") || has("device") || has("local")) {
    return "WFBPUnlimited";
  }
  throw usage_error(sentence({"there is no kvstore type '", type,
                              "'. Fix: use local, device, nccl, dist_sync, dist_device_sync, "
                              "dist_async, p3, horovod or byteps"}));
}

}  // namespace tutti::strategies
