// Latent attention (program/ops/latent_attention.cpp, latent_cache.cpp): what surrounds flash attention where
// queries and keys have another size than values, and decoding from cached latents.
//
// Operands are fp32, bf16 or fp16, `dtype`; arithmetic and sums are fp32. Launchers only submit. They throw
// core::Unavailable for another dtype or more shared memory than a block has, and std::runtime_error if a
// launch fails.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/attention/attention.h"
#include "backends/cuda/kernels/stream.h"
#include "core/dtype.h"

namespace rooflm::backends::cuda {

/// Of `rows` tokens: heads of `plain` + `rotary` elements of queries and keys, and `v_dim` of values.
/// `head_dim`: what flash attention has of each, the largest of them at least.
struct LatentShape {
  std::int64_t rows = 0, heads = 0, plain = 0, rotary = 0, v_dim = 0, head_dim = 0;
  [[nodiscard]] std::int64_t qk_dim() const { return plain + rotary; }
};

/// q [rows, H Dqk], kv [rows, H (P + Dv)], rotary [rows, Dr] -> qkv [rows, 3 H D], padded with zeros.
void launch_pack_latent(Stream stream, core::DType dtype, const LatentShape& shape, const void* q,
                        const void* kv, const void* rotary, void* qkv);
/// The reverse of gradients: dqkv -> dq, dkv, and drotary, the sum over heads.
void launch_unpack_latent(Stream stream, core::DType dtype, const LatentShape& shape, const void* dqkv,
                          void* dq, void* dkv, void* drotary);
/// Rows of `from_cols` elements become rows of `to_cols`, cut or padded with zeros.
void launch_resize_rows(Stream stream, core::DType dtype, std::int64_t rows, std::int64_t from_cols,
                        std::int64_t to_cols, const void* from, void* to);

/// Rows 0 .. seq - 1 of cache [S, 1, positions, cols] become those of from [B, seq, cols]. Text b uses slot
/// slots[b], or slot b if slots is null.
void launch_append_rows(Stream stream, core::DType dtype, std::int64_t batch, std::int64_t seq,
                        std::int64_t positions, std::int64_t cols, const void* from,
                        const std::int32_t* slots, void* cache);

struct LatentDecode {
  std::int64_t batch = 0, heads = 0, plain = 0, rotary = 0, v_dim = 0, rank = 0, positions = 0;
  float scale = 1;
  const void* q = nullptr;              ///< [B, 1, H Dqk]
  const void* latent = nullptr;         ///< [B, 1, R]
  const void* rotary_key = nullptr;     ///< [B, 1, Dr]
  const std::int32_t* first = nullptr;  ///< [B]
  const void* w = nullptr;              ///< [H (P + Dv), R]
  void* latents = nullptr;              ///< [B, 1, positions, R]
  void* keys = nullptr;                 ///< [B, 1, positions, Dr]
  void* y = nullptr;                    ///< [B, 1, H Dv]
};
/// Row first[b] of the caches becomes that of the token, which then attends to rows 0 .. first[b].
void launch_decode_latent_attention(Stream stream, core::DType dtype, const LatentDecode& decode);

}  // namespace rooflm::backends::cuda
