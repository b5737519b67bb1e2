// GPTQ (Frantar et al., 2022): rounding that the columns that follow make up for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "model/quantized_files.h"
#include "train/data_loader.h"
#include "train/session.h"

namespace rooflm::train {

/// Rounds a matrix [rows, width] to int8 or int4 so that X W^T changes little, given gram = X^T X [width,
/// width] of its inputs. Returns codes and scales (core::PackedMatrix) and leaves in `weight` what they stand
/// for. Columns are taken in their order; 1 % of the mean of the diagonal is added to it, as in the paper.
std::vector<std::byte> round_by_gptq(core::DType dtype, std::int64_t rows, std::int64_t width,
                                     std::span<float> weight, std::span<const float> gram);

/// Rounds the matrices of the layers of the session's model, layer after layer, each by its inputs in the
/// model whose layers before are rounded already. `samples`: so many of the batches. The session keeps the
/// rounded weights. `on_layer` is told how many are done. Throws core::InputError where X^T X is not finite.
model::PackedWeights quantize_by_gptq(Session& session, core::DType dtype, const EvalBatches& batches,
                                      std::uint64_t samples,
                                      const std::function<void(std::int64_t)>& on_layer);

}  // namespace rooflm::train
