// The kernel table of NVIDIA GPUs.
#include "backends/cuda/kernel_rows.h"

#include <array>

#include "program/ops.h"

namespace rooflm::backends::cuda {

std::span<const MakerRow> kernel_rows() {
  namespace ops = program::ops;
  static constexpr std::array kRows = {
      MakerRow{&ops::kMatmul, make_matmul},
  };
  return kRows;
}

}  // namespace rooflm::backends::cuda
