// The choice of attention kernels, as the CUDA backend makes it.
#include "devices/cuda_attention.h"

#include <algorithm>
#include <array>

#include "program/ops.h"
#include "program/scores.h"

namespace rooflm::devices {
namespace {

using core::DType;
using program::Fp32Products;

constexpr std::int64_t kWhole = 8;  ///< tensor cores take head sizes that are multiples of this
constexpr std::int64_t kMostHeadDim = 256;

/// fp32 numbers that tensor cores take as two of tf32.
bool is_split(const AttentionUse& use) {
  return use.dtype == DType::f32 && use.fp32_products == Fp32Products::bf16x6;
}
/// As kernels/attention_tiles.cuh.
bool is_split_head_dim(std::int64_t head_dim) { return head_dim > 32 && head_dim <= 128; }

bool is_half(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

/// The gradient in one pass: its head sizes, and the positions from which it is faster than cuDNN's and than
/// two passes.
constexpr std::array<std::int64_t, 2> kOnePassHeadDims = {64, 128};
constexpr std::int64_t kOnePassFrom = 1024;

/// What cuDNN computes at a time. It computes the rest of a sequence's last tile, too, masked.
constexpr std::int64_t kCudnnTile = 128;

/// Sequences that end within a tile: own kernels on warp groups are about as fast as cuDNN's at whole tiles,
/// and those on tensor cores with heads of up to 32; other heads take them 1.3 to 2.8 times as long as cuDNN
/// takes whole tiles, from 1000 positions on (one H100, 2026-11-26; docs/performance/attention.md, "Sequences
/// that end within a tile").
constexpr std::int64_t kBrokenFrom = 512;
constexpr std::int64_t kNarrowest = 32;

/// The least work of the mean multiprocessor, by that of the longest block of keys, at which rooflm's
/// gradients are preferred. One H100, bf16, 2026-11-26: where it is 0.67, one key head instead of 8 or 16
/// makes ours take 1.46 to 1.48 times as long (D=128, 64), cuDNN's hardly longer; with as many key heads as
/// query heads cuDNN takes 1.24 (128) and 1.46 times (64) as long as ours (docs/performance/attention.md,
/// "Shared keys").
constexpr double kMultiprocessors = 132;
constexpr double kBusyShare = 0.75;
constexpr double kBusyShareOfNarrow = 0.5;
/// The same of sequences below kBrokenFrom, of which cuDNN computes up to 127 masked positions. One H200,
/// bf16, 2026-11-27, steps: on warp groups ours take 0.99 (0.24, 0.36: 0.97 and 0.95) of cuDNN's time where
/// it is 0.15, 1.00 to 1.13 where it is 0.06 to 0.09; on tensor cores 1.36 where it is 0.15 and 1.15 where it
/// is 0.08.
constexpr double kBusyShareOfShort = 0.1;
constexpr double kBusyShareOfShortPlain = 0.2;
constexpr std::int64_t kNarrowHead = 64;

AttentionFamily own_family(std::string_view device_key, const AttentionUse& use,
                           const AttentionSizes& sizes) {
  if (use.dtype == DType::bf16 && has_warp_group_kernels(device_key, sizes))
    return AttentionFamily::warp_groups;
  const bool takes_dtype =
      is_half(use.dtype) || (use.dtype == DType::f32 && use.fp32_products != Fp32Products::plain &&
                             use.rules == AttentionRules::none);
  const bool takes_head = sizes.head_dim % kWhole == 0 && sizes.head_dim <= kMostHeadDim &&
                          (!is_split(use) || is_split_head_dim(sizes.head_dim));
  return takes_dtype && takes_head ? AttentionFamily::tensor_cores : AttentionFamily::cuda_cores;
}

/// As with_tile_dim of kernels/attention_tiles.cuh.
std::int64_t tensor_core_width(const AttentionUse& use, std::int64_t head_dim) {
  if (is_half(use.dtype) && head_dim <= kNarrowest) return kNarrowest;
  const std::int64_t middle = use.dtype == DType::f32 ? 96 : 80;
  const std::array<std::int64_t, 4> widths = {64, middle, 128, 192};
  const auto* found = std::ranges::find_if(widths, [&](std::int64_t width) { return head_dim <= width; });
  return found == widths.end() ? kMostHeadDim : *found;
}

AttentionTile tensor_core_tile(const AttentionUse& use, std::int64_t head_dim) {
  const std::int64_t width = tensor_core_width(use, head_dim);
  const bool has_few_rows =
      width >= 192 || (use.dtype != DType::bf16 && width > 64) || is_split(use);  // kMostTiles
  return {.width = width,
          .rows = has_few_rows ? 64 : 128,
          .padding = static_cast<double>(width) / static_cast<double>(head_dim)};
}

/// As with_fp32_tiles of kernels/attention_fp32.cuh. Scores are summed over a head's own columns, by fours;
/// results have columns by 32.
AttentionTile cuda_core_tile(std::int64_t head_dim) {
  const auto up_to = [&](std::int64_t unit) { return (head_dim + unit - 1) / unit * unit; };
  const double padding = static_cast<double>(up_to(4) + up_to(32)) / static_cast<double>(2 * head_dim);
  if (head_dim <= 64) return {.width = 64, .rows = 128, .padding = padding};
  if (head_dim <= 128) return {.width = 128, .rows = 64, .padding = padding};
  if (head_dim <= 192) return {.width = 192, .rows = 32, .padding = padding};
  return {.width = 256, .rows = 64, .padding = padding};
}

}  // namespace

AttentionRules attention_rules_of(const program::Op& op, std::int64_t seq) {
  const auto scores = program::Scores::of(op.attrs);
  const bool has_sinks = program::sinks_of(op) != program::kNone;
  if (scores.cap > 0 || scores.alibi || (has_sinks && op.is(program::ops::kFlashAttention)))
    return AttentionRules::other;
  if (scores.window > 0 && scores.window < seq) return AttentionRules::window;
  return has_sinks ? AttentionRules::sinks : AttentionRules::none;
}

bool fits_cudnn_attention(DType dtype, const AttentionSizes& sizes) {
  return is_half(dtype) && sizes.head_dim % kWhole == 0 && sizes.head_dim <= kMostHeadDim;
}

std::int64_t whole_tiles(std::int64_t seq) { return (seq + kCudnnTile - 1) / kCudnnTile * kCudnnTile; }

bool is_own_faster_within_tile(DType dtype, const AttentionSizes& sizes, bool on_warp_groups) {
  if (whole_tiles(sizes.seq) == sizes.seq) return false;
  const bool is_narrow = is_half(dtype) && sizes.head_dim <= kNarrowest;
  return on_warp_groups || is_narrow || sizes.seq < kBrokenFrom;
}

bool has_few_key_blocks(const AttentionSizes& sizes, bool on_warp_groups, bool is_deterministic) {
  if (sizes.kv_heads == sizes.heads || sizes.seq <= kCudnnTile) return false;
  const bool is_short = sizes.seq < kBrokenFrom;
  if (is_short && is_deterministic) return false;  // not measured
  // The last block of keys has one tile of queries, the first all of them.
  const std::int64_t tiles = whole_tiles(sizes.seq) / kCudnnTile;
  const double mean_tiles = static_cast<double>(tiles + 1) / 2;
  const double share =
      static_cast<double>(sizes.batch) * static_cast<double>(sizes.kv_heads) * mean_tiles / kMultiprocessors;
  if (is_short) return share < (on_warp_groups ? kBusyShareOfShort : kBusyShareOfShortPlain);
  return share < (sizes.head_dim <= kNarrowHead ? kBusyShareOfNarrow : kBusyShare);
}

bool is_one_pass_gradient_faster(const AttentionSizes& sizes) {
  return !has_few_key_blocks(sizes, true, false) && sizes.seq >= kOnePassFrom &&
         std::ranges::find(kOnePassHeadDims, sizes.head_dim) != kOnePassHeadDims.end();
}

AttentionFamily attention_family_of(std::string_view device_key, const AttentionUse& use,
                                    const AttentionSizes& sizes) {
  const AttentionFamily own = own_family(device_key, use, sizes);
  const bool is_other = use.rules == AttentionRules::other;
  if (own == AttentionFamily::warp_groups && use.is_gradient && !use.is_deterministic && !is_other &&
      is_one_pass_gradient_faster(sizes)) {
    return AttentionFamily::one_pass;
  }
  const bool on_warp_groups = own == AttentionFamily::warp_groups;
  const bool has_few_blocks =
      use.is_gradient && has_few_key_blocks(sizes, on_warp_groups, use.is_deterministic);
  const bool is_own_faster =
      !has_few_blocks &&
      (is_own_faster_within_tile(use.dtype, sizes, on_warp_groups) ||
       (on_warp_groups && (use.is_gradient ? is_own_attention_gradient_faster(sizes, use.is_deterministic)
                                           : is_short_attention(sizes))));
  const bool is_too_long =
      use.is_gradient && use.is_deterministic && score_bytes_of_group(sizes) > kScoreBytes;
  const bool stores_hidden =
      on_warp_groups && use.is_gradient && use.is_deterministic && use.rules == AttentionRules::window;
  if (is_own_faster || is_too_long || is_other || stores_hidden || !fits_cudnn_attention(use.dtype, sizes))
    return own;
  return AttentionFamily::cudnn;
}

AttentionTile attention_tile(AttentionFamily kernels, const AttentionUse& use, std::int64_t head_dim) {
  switch (kernels) {
    case AttentionFamily::cudnn:
      return {};
    case AttentionFamily::warp_groups:
    case AttentionFamily::one_pass:
      return {.width = head_dim, .rows = 128};
    case AttentionFamily::tensor_cores:
      return tensor_core_tile(use, head_dim);
    case AttentionFamily::cuda_cores:
      return cuda_core_tile(head_dim);
  }
  return {};
}

}  // namespace rooflm::devices
