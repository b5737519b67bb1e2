// Collectives by NCCL's kernels with few blocks, which leave the other multiprocessors to overlapping
// matmuls.
#pragma once

#include "backends/cuda/collectives/collectives.h"

namespace rooflm::backends::cuda {

class FewBlocks final : public Collectives {
 public:
  using Collectives::Collectives;
  static nccl::Config config() {
    nccl::Config config;
    config.min_ctas = 1;
    config.max_ctas = kBlocks;
    return config;
  }
  [[nodiscard]] int multiprocessors() const override { return kBlocks; }

 private:
  /// On Hopper one moves some 44 (gathers) to 65 GB/s (sums) over NVLink (NCCL 2.28.9, sym_kernels.cc), so
  /// four are enough for a layer's gradients while its backward pass runs.
  static constexpr int kBlocks = 4;
};

}  // namespace rooflm::backends::cuda
