// How weights are stored that no step changes, by name.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/named.h"

namespace rooflm::core {

/// How matrices of layers are stored that no step changes. `plain`: as the compute dtype wants them.
enum class WeightFormat : std::uint8_t { plain, bf16, int8, int4, nf4, fp8, sparse };
constexpr auto names_of(WeightFormat) {
  return named<WeightFormat>("format of weights", {{WeightFormat::plain, "plain"},
                                                   {WeightFormat::bf16, "bf16"},
                                                   {WeightFormat::int8, "int8"},
                                                   {WeightFormat::int4, "int4"},
                                                   {WeightFormat::nf4, "nf4"},
                                                   {WeightFormat::fp8, "fp8"},
                                                   {WeightFormat::sparse, "2:4"}});
}
/// fp32 for `plain`.
DType dtype_of(WeightFormat format);

}  // namespace rooflm::core
