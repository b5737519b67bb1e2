// Which attention kernels the CUDA backend runs. Known without a GPU, so that plans price what runs.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/dtype.h"
#include "devices/cuda_workspaces.h"
#include "program/fp32_products.h"
#include "program/program.h"

namespace rooflm::devices {

enum class AttentionFamily {
  cudnn,
  warp_groups,   ///< rooflm's, matrix instructions of Hopper's warp groups: bf16
  one_pass,      ///< the same instructions, the gradient in one pass, its sums in any order
  tensor_cores,  ///< rooflm's, mma.sync: bf16, fp16, tf32; of bf16x6 three products in tf32
  cuda_cores,    ///< rooflm's, fp32 multiply-adds
};

/// Rules of scores (program/scores.h) by who computes them.
enum class AttentionRules {
  none,    ///< scaled products
  sinks,   ///< of gradients: they find sinks in lse
  window,  ///< a window: cuDNN has it, but its gradient in a fixed order stores what is hidden
  other,   ///< caps, ALiBi, and forward sinks: rooflm's kernels in two passes
};

struct AttentionUse {
  core::DType dtype = core::DType::bf16;
  program::Fp32Products fp32_products = program::Fp32Products::plain;  ///< of fp32 operands
  bool is_gradient = false;
  bool is_deterministic = true;  ///< the gradient adds up in a fixed order
  AttentionRules rules = AttentionRules::none;
  bool operator==(const AttentionUse&) const = default;
};

/// Of an op of flash attention.
[[nodiscard]] AttentionRules attention_rules_of(const program::Op& op, std::int64_t seq);

/// Whether cuDNN's engines are asked for such a problem at all: 16 bits, head sizes that are multiples of 8,
/// up to 256.
[[nodiscard]] bool fits_cudnn_attention(core::DType dtype, const AttentionSizes& sizes);
/// The positions that cuDNN computes for a sequence: the next multiple of 128.
[[nodiscard]] std::int64_t whole_tiles(std::int64_t seq);
/// Whether rooflm's kernels are preferred because sequences end within a tile. `on_warp_groups`: whether they
/// would be those for warp groups.
[[nodiscard]] bool is_own_faster_within_tile(core::DType dtype, const AttentionSizes& sizes,
                                             bool on_warp_groups);

/// Whether the blocks of rooflm's gradients leave multiprocessors idle because few key heads are shared by
/// many query heads: a block has 128 keys of one key head, and all query heads that share it.
/// `on_warp_groups`: whether they would be those for warp groups. Never for short sequences whose sums have
/// one order.
[[nodiscard]] bool has_few_key_blocks(const AttentionSizes& sizes, bool on_warp_groups,
                                      bool is_deterministic);

/// Whether a gradient whose sums may be in any order is computed in one pass, of bf16 on a device that
/// has_warp_group_kernels: heads of 64 and 128, and 1024 positions or more, as measured on an H100
/// (docs/performance/attention.md, "Backward in one pass").
[[nodiscard]] bool is_one_pass_gradient_faster(const AttentionSizes& sizes);

/// What a device of the catalog runs, with cuDNN installed and operands that are aligned to 16 bytes: the
/// choice of backends/cuda/rows/attention.cpp and kernels/attention.cu.
[[nodiscard]] AttentionFamily attention_family_of(std::string_view device_key, const AttentionUse& use,
                                                  const AttentionSizes& sizes);

/// A block of such a kernel, of a forward pass or of the gradient of queries.
struct AttentionTile {
  std::int64_t width = 0;  ///< columns that it computes with, at least a head's: kernels/attention_tiles.cuh
  std::int64_t rows = 0;   ///< queries; keys of a gradient in one pass
  double padding = 1;      ///< multiply-adds that it executes by those of a head's own columns
};
/// Of rooflm's kernels; width and rows are 0 for cuDNN's.
[[nodiscard]] AttentionTile attention_tile(AttentionFamily kernels, const AttentionUse& use,
                                           std::int64_t head_dim);

}  // namespace rooflm::devices
