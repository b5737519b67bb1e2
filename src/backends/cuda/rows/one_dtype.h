// Kernels whose operands have one dtype.
#pragma once

#include <cstddef>
#include <utility>

#include "backends/cuda/rows/rows.h"

namespace rooflm::backends::cuda {

/// Calls launch(stream, dtype, fixed.., inputs.., outputs..) with the first kIns inputs and kOuts outputs of
/// the op. Nothing where these have several dtypes, or one that kernels do not store.
template <std::size_t kIns, std::size_t kOuts, class Launch, class... Fixed>
Kernel one_dtype(const OpView& v, Launch launch, const Fixed&... fixed) {
  const auto make = [&]<std::size_t... I, std::size_t... O>(std::index_sequence<I...>,
                                                            std::index_sequence<O...>)
                        ->Kernel {
    const core::DType dtype = v.in(0).dtype;
    if (!is_storage(dtype) || !v.inputs_are({I...}, dtype) || !v.outputs_are({O...}, dtype)) return {};
    return [context = v.context, launch, dtype, fixed...](const KernelArgs& args) {
      launch(context->stream(), dtype, fixed..., args.in[I]..., args.out[O]...);
    };
  };
  return make(std::make_index_sequence<kIns>(), std::make_index_sequence<kOuts>());
}

}  // namespace rooflm::backends::cuda
