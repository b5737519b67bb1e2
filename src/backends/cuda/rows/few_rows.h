// Weights that are packed.
#pragma once

#include <memory>

#include "backends/cuda/kernels/few_rows/packed_weight.h"
#include "backends/cuda/rows/rows.h"

namespace rooflm::backends::cuda {

/// A packed input of an op, if it is packed, with what its codes mean.
class PackedFactor {
 public:
  /// The right factor of a matmul.
  explicit PackedFactor(const OpView& v);
  /// Input 0, a matrix.
  static PackedFactor of_matrix(const OpView& v);
  [[nodiscard]] PackedWeight of(const void* data) const;
  [[nodiscard]] std::int64_t count() const { return weight_.rows * weight_.width; }

 private:
  PackedFactor(const OpView& v, const PackedWeight& weight);
  PackedWeight weight_;
  std::shared_ptr<DeviceMemory> scale_values_;  // nf4
};

}  // namespace rooflm::backends::cuda
