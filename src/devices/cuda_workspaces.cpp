// How much memory kernels of the CUDA backend need beside their operands.
#include "devices/cuda_workspaces.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/checked.h"

namespace rooflm::devices {
namespace {

constexpr std::int64_t kShort = 128;         ///< positions: both take microseconds, cuDNN a few more
constexpr std::int64_t kWide = 96;           ///< head size from which cuDNN's gradient is faster in any case
constexpr std::int64_t kManyRows = 1 << 17;  ///< of all heads, from which its sums in any order are faster,
constexpr std::int64_t kMiddle = 1024;       ///< and positions, with heads of kNarrow
constexpr std::int64_t kNarrow = 64;
constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kFloat = 4;
constexpr std::int64_t kInt = 4;
constexpr std::int64_t kScore = 2;

constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The largest divisor of `count` that is at most max(most, 1).
std::int64_t divisor(std::int64_t count, std::int64_t most) {
  for (std::int64_t d = std::clamp<std::int64_t>(most, 1, count); d > 1; --d) {
    if (count % d == 0) return d;
  }
  return 1;
}

/// Blocks of a norm's gradient: BackwardShape of kernels/norm/norm_backward.cu.
std::int64_t norm_gradient_blocks(std::int64_t rows, std::int64_t cols, int multiprocessors, bool is_layer,
                                  bool is_narrow, bool is_aligned) {
  constexpr std::int64_t kPack = 8, kWarp = 32, kMostThreads = 512, kFewerThreads = 384, kRowsOfBlock = 4,
                         kBlocksOfWarpRows = 3, kMostWarpPacks = 3, kLongPacks = 4;
  const std::int64_t all = ceil_div(cols, kPack);
  const auto warps_with = [&](std::int64_t packs) { return ceil_div(all, packs * kWarp); };
  const auto most_with = [&](std::int64_t packs) {
    return is_layer && packs == 2 ? kFewerThreads : kMostThreads;
  };
  if (is_aligned && warps_with(is_narrow ? kMostWarpPacks : 1) == 1) {
    const std::int64_t each = is_layer && warps_with(kMostWarpPacks - 1) > 1 ? 2 : kBlocksOfWarpRows;
    return std::clamp<std::int64_t>(ceil_div(rows, kRowsOfBlock), 1, each * multiprocessors);
  }
  std::int64_t packs = is_narrow ? 2 : 1;
  while ((!is_aligned || warps_with(packs) * kWarp > most_with(packs)) && packs != kLongPacks) packs *= 2;
  const std::int64_t each = std::max<std::int64_t>(1, most_with(packs) / (warps_with(packs) * kWarp));
  return std::clamp<std::int64_t>(rows, 1, each * multiprocessors);
}

}  // namespace

std::int64_t bf16x6_parts(const GemmSizes& sizes, int multiprocessors, bool beside) {
  // Microseconds, H100: a step of a tile; what a tile takes besides, in steps; the kernel that adds the
  // parts, and a byte that it reads or that was written for it.
  constexpr double kStepUs = 1.3;
  constexpr double kFillSteps = 4;
  constexpr double kAddUs = 4;
  constexpr double kByteUs = 1.0 / 2.5e6;
  constexpr std::int64_t kMostParts = 32;
  const std::int64_t most_bytes = beside ? kSideGemmWorkspaceBytes : kBf16x6WorkspaceBytes;
  const std::int64_t tiles = sizes.batch * ceil_div(sizes.m, kBf16x6Tile) * ceil_div(sizes.n, kBf16x6Tile);
  const std::int64_t steps = ceil_div(sizes.k, kBf16x6Step);
  const std::int64_t bytes = sizes.batch * sizes.m * sizes.n * kFloat;
  std::int64_t best = 1;
  double best_us = std::numeric_limits<double>::infinity();
  for (std::int64_t parts = 1; parts <= std::min(kMostParts, steps); ++parts) {
    if (parts > 1 && parts * bytes > most_bytes) break;
    const auto waves = static_cast<double>(ceil_div(tiles * parts, std::max(1, multiprocessors)));
    double us = waves * (static_cast<double>(ceil_div(steps, parts)) + kFillSteps) * kStepUs;
    if (parts > 1) us += kAddUs + 2 * static_cast<double>(parts * bytes) * kByteUs;
    if (us < best_us) {
      best = parts;
      best_us = us;
    }
  }
  return best;
}

std::int64_t bf16x6_workspace_bytes(const GemmSizes& sizes, std::int64_t parts) {
  return parts > 1 ? aligned(parts * sizes.batch * sizes.m * sizes.n * kFloat) : 0;
}

bool has_warp_group_kernels(std::string_view device_key, const AttentionSizes& sizes) {
  constexpr std::array<std::string_view, 4> kHopper = {"h100", "h800", "h20", "gh200"};  // h20: and h200
  const auto begins = [&](std::string_view start) { return device_key.starts_with(start); };
  const bool is_hopper = std::ranges::any_of(kHopper, begins);
  return is_hopper && (sizes.head_dim == 64 || sizes.head_dim == 80 || sizes.head_dim == 128);
}

bool is_short_attention(const AttentionSizes& sizes) { return sizes.seq <= kShort; }

bool is_own_attention_gradient_faster(const AttentionSizes& sizes, bool deterministic) {
  if (is_short_attention(sizes)) return true;
  if (sizes.head_dim >= kWide) return false;
  if (sizes.head_dim == kNarrow && sizes.seq < kMiddle) return true;
  return deterministic || sizes.batch * sizes.heads * sizes.seq < kManyRows;
}

std::int64_t score_bytes_of_group(const AttentionSizes& sizes) {
  return core::Count(sizes.heads / sizes.kv_heads) * sizes.seq * sizes.seq * kScore;
}

AttentionSizes part_within(AttentionSizes sizes, std::int64_t bytes) {
  const std::int64_t group = sizes.heads / sizes.kv_heads;
  const std::int64_t most = bytes / score_bytes_of_group(sizes);  // most groups per part
  if (most >= sizes.kv_heads) {
    sizes.batch = divisor(sizes.batch, most / sizes.kv_heads);
    return sizes;
  }
  sizes.batch = 1;
  sizes.kv_heads = divisor(sizes.kv_heads, most);
  sizes.heads = sizes.kv_heads * group;
  return sizes;
}

std::int64_t own_gradient_bytes(const AttentionSizes& sizes) {
  return sizes.batch * sizes.seq * sizes.heads * kFloat;
}

std::int64_t one_pass_gradient_bytes(const AttentionSizes& sizes) {
  const std::int64_t tile = sizes.head_dim == 64 ? 128 : 64;  // kFusedQueries
  const std::int64_t rows = sizes.batch * sizes.heads * ceil_div(sizes.seq, tile) * tile;
  constexpr std::int64_t kCounter = 4;
  return rows * (sizes.head_dim + 2) * kFloat + kCounter;
}

std::int64_t cudnn_gradient_bytes(const AttentionSizes& sizes, bool deterministic) {
  const AttentionSizes part = deterministic ? part_within(sizes, kScoreBytes) : sizes;
  const std::int64_t rows = own_gradient_bytes(part);
  // Shared keys: their gradients and those of values by query head, 16 bits each.
  const std::int64_t of_heads = part.heads == part.kv_heads ? 0 : aligned(rows * part.head_dim);
  if (!deterministic) return aligned(rows) + aligned(rows * part.head_dim) + of_heads;
  return aligned(rows) + part.batch * part.kv_heads * score_bytes_of_group(part) + of_heads;
}

std::int64_t latent_head_dim(std::int64_t qk_dim, std::int64_t v_dim) {
  constexpr std::int64_t kPack = 8;
  return ceil_div(std::max(qk_dim, v_dim), kPack) * kPack;
}

std::int64_t latent_padded_bytes(const AttentionSizes& sizes, std::int64_t element_bytes) {
  return aligned(core::Count(sizes.batch) * sizes.seq * sizes.heads * sizes.head_dim * element_bytes);
}

std::int64_t latent_packed_bytes(const AttentionSizes& sizes, std::int64_t element_bytes) {
  return 3 * core::Count(latent_padded_bytes(sizes, element_bytes));
}

std::int64_t latent_attention_bytes(const AttentionSizes& sizes, std::int64_t element_bytes,
                                    bool is_gradient) {
  const core::Count packed = latent_packed_bytes(sizes, element_bytes);
  const core::Count padded = latent_padded_bytes(sizes, element_bytes);
  return is_gradient ? 2 * packed + 2 * padded + own_gradient_bytes(sizes) : packed + padded;
}

std::int64_t norm_gradient_bytes(std::int64_t rows, std::int64_t cols, int multiprocessors, int arrays) {
  std::int64_t blocks = 0;
  for (const bool is_layer : {false, true}) {
    for (const bool is_narrow : {false, true}) {
      for (const bool is_aligned : {false, true}) {
        blocks = std::max(blocks,
                          norm_gradient_blocks(rows, cols, multiprocessors, is_layer, is_narrow, is_aligned));
      }
    }
  }
  return blocks * arrays * cols * kFloat;
}

std::int64_t dispatch_bytes(std::int64_t choices, std::int64_t experts) {
  return kInt * experts * ceil_div(choices, kChoicesOfWarp);
}

std::int64_t route_gradient_bytes(std::int64_t experts) { return kInt * experts; }

}  // namespace rooflm::devices
