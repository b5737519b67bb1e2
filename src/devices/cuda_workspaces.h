// Memory that kernels of the CUDA backend need beside their operands. Known without a GPU, so that plans
// count it.
#pragma once

#include <cstdint>
#include <string_view>

namespace rooflm::devices {

/// Of cuBLASLt, for the matmuls of the compute lane and for those that overlap them.
inline constexpr std::int64_t kGemmWorkspaceBytes = std::int64_t{16} << 20U;
inline constexpr std::int64_t kSideGemmWorkspaceBytes = std::int64_t{8} << 20U;

/// Most bytes of score gradients that cuDNN's deterministic attention gradient has at a time.
inline constexpr std::int64_t kScoreBytes = std::int64_t{1} << 31U;

/// Of `batch` matmuls [m, k] x [k, n].
struct GemmSizes {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
};
/// Rows and columns of a block's tile, and the step of k, of kernels/gemm_bf16x6.cu.
inline constexpr std::int64_t kBf16x6Tile = 128;
inline constexpr std::int64_t kBf16x6Step = 32;
/// The most that partial sums of a matmul of the compute lane may need.
inline constexpr std::int64_t kBf16x6WorkspaceBytes = std::int64_t{64} << 20U;
/// Into how many parts it splits k, each summed by blocks of its own: what takes the least time by a model of
/// waves of blocks (docs/performance/number_formats.md). Partial sums need at most
/// kBf16x6WorkspaceBytes, of a matmul that overlaps others kSideGemmWorkspaceBytes.
[[nodiscard]] std::int64_t bf16x6_parts(const GemmSizes& sizes, int multiprocessors, bool beside);
/// Of so many parts' sums in fp32; one part needs none.
[[nodiscard]] std::int64_t bf16x6_workspace_bytes(const GemmSizes& sizes, std::int64_t parts);

/// Rows up to which a matmul reads a plain and a packed weight itself (kernels/few_rows); of more, a packed
/// one is unpacked into memory before each matmul.
inline constexpr std::int64_t kMostPlainRows = 8, kMostPackedRows = 32;

/// Choices of experts that a warp sorts (kernels/experts_rows.cu).
inline constexpr std::int64_t kChoicesOfWarp = 256;
/// Of `dispatch`: int32 counts of each expert's choices in each warp's part.
[[nodiscard]] std::int64_t dispatch_bytes(std::int64_t choices, std::int64_t experts);
/// Of `route_backward` with a balance loss: int32 counts of each expert's rows.
[[nodiscard]] std::int64_t route_gradient_bytes(std::int64_t experts);

struct AttentionSizes {
  std::int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
};

/// Whether rooflm's attention kernels for warp groups run on a device of the catalog: compute capability 9,
/// head sizes of 64, 80 and 128.
[[nodiscard]] bool has_warp_group_kernels(std::string_view device_key, const AttentionSizes& sizes);
/// Whether these kernels, the gradient in two passes, are faster than cuDNN's, as measured on an H200 and an
/// H100 (docs/performance/attention.md). On other GPUs cuDNN always goes first.
[[nodiscard]] bool is_short_attention(const AttentionSizes& sizes);
[[nodiscard]] bool is_own_attention_gradient_faster(const AttentionSizes& sizes, bool deterministic);

/// What cuDNN's deterministic gradient processes at a time: the largest part of batch and heads whose score
/// gradients, 2 bytes each, need at most `bytes`.
[[nodiscard]] AttentionSizes part_within(AttentionSizes sizes, std::int64_t bytes);
/// Score gradients of one key/value head, with all query heads that share it.
[[nodiscard]] std::int64_t score_bytes_of_group(const AttentionSizes& sizes);

/// Scratch memory of the gradient by cuDNN: dy y of each row in fp32 and, deterministic, the gradients of the
/// scores of one part, otherwise fp32 sums of the queries' gradients; where query heads share keys, gradients
/// of keys and values by query head. What cuDNN adds to that is not known.
[[nodiscard]] std::int64_t cudnn_gradient_bytes(const AttentionSizes& sizes, bool deterministic);
/// By rooflm's kernels: dy y of each row in fp32.
[[nodiscard]] std::int64_t own_gradient_bytes(const AttentionSizes& sizes);
/// By rooflm's kernel of one pass, heads of 64 or 128: sums of the queries' gradients and two numbers of each
/// row, in fp32, of whole tiles of queries.
[[nodiscard]] std::int64_t one_pass_gradient_bytes(const AttentionSizes& sizes);

/// Latent attention, whose queries and keys have another size than values, runs as flash attention of heads
/// of this size: the larger of both, a whole number of packs.
[[nodiscard]] std::int64_t latent_head_dim(std::int64_t qk_dim, std::int64_t v_dim);
/// `sizes` with that head size. Packed queries, keys and values; padded results; and all that latent
/// attention or its gradient needs of both, and of flash attention's gradient.
[[nodiscard]] std::int64_t latent_packed_bytes(const AttentionSizes& sizes, std::int64_t element_bytes);
[[nodiscard]] std::int64_t latent_padded_bytes(const AttentionSizes& sizes, std::int64_t element_bytes);
[[nodiscard]] std::int64_t latent_attention_bytes(const AttentionSizes& sizes, std::int64_t element_bytes,
                                                  bool is_gradient);

/// Of the gradients of layernorm and rmsnorm: sums of weight gradients by block
/// (kernels/norm/norm_backward.cu).
[[nodiscard]] std::int64_t norm_gradient_bytes(std::int64_t rows, std::int64_t cols, int multiprocessors,
                                               int arrays);

}  // namespace rooflm::devices
