// Generation with latent attention (program/ops/latent_attention.cpp). What is cached of a token is its
// compressed key and value, latents [B, 1, P, R], and the rotated part of its key, keys [B, 1, P, Dr]: all
// heads share them.
//   append_latents (latent [B, T, R], rotary [B, T, Dr], latents, keys): rows 0 .. T - 1 of the caches become
//   those of latent and rotary. With `slots` [B] int32 before the caches, as append_cache.
//   decode_latent_attention (q [B, 1, H Dqk], latent [B, 1, R], rotary [B, 1, Dr], first [B] int32, w [H (P +
//   Dv), R], latents, keys) -> y [B, 1, H Dv]: row first[b] of the caches becomes that of latent and rotary;
//   then attention over rows 0 .. first[b] in the absorbed form (DeepSeek-V2, 2024): with Wk and Wv the rows
//   of w of a head, scores are scale (q_plain Wk c + q_rotary k) of cached c and k, and y = Wv sum of p c. No
//   key and no value is made of a cached row.
// Attributes: heads, qk_dim, v_dim, scale (absent: 1 / sqrt(Dqk)); keys, the number of rows that costs count.
#include <fmt/format.h>

#include <utility>

#include "core/checked.h"
#include "program/ops.h"
#include "program/ops/per_text.h"

namespace rooflm::program::ops {
namespace {

using core::Count;
using core::Shape;

/// The caches are the op's last inputs, and outputs as well: it writes them in place. `latent`: index of the
/// rows that it writes.
std::vector<Tensor> cache_outputs(const Program& p, const Op& op, std::size_t latent, bool has_slots) {
  std::vector<Tensor> outputs;
  for (const std::size_t i : {0U, 1U}) {
    const Shape& rows = p.shape(op.inputs.at(latent + i));
    const Shape& cache = p.shape(op.inputs.at(op.inputs.size() - 2 + i));
    const bool fits = rows.rank() == 3 && cache.rank() == 4 &&
                      cache == Shape{cache[0], 1, cache[2], rows[2]} && cache[2] >= rows[1] &&
                      (has_slots ? cache[0] >= rows[0] : cache[0] == rows[0]);
    expect(fits, op, [&] { return fmt::format("rows {} for a cache {}", rows.str(), cache.str()); });
    outputs.push_back({.shape = cache, .role = Role::cache});
  }
  return outputs;
}

/// Bytes of `rows` rows of both caches of all texts.
Count row_bytes(const Program& p, const Op& op, Count texts, Count rows) {
  const std::size_t caches = op.inputs.size() - 2;
  const Count width = Count(p.shape(op.inputs[caches])[-1]) + p.shape(op.inputs[caches + 1])[-1];
  return texts * rows * width * static_cast<std::int64_t>(core::size_of(p.tensor(op.inputs[caches]).dtype));
}

std::vector<Tensor> infer_append(const Program& p, const Op& op) {
  constexpr std::size_t kWithSlots = 5;
  const bool has_slots = op.inputs.size() == kWithSlots;
  if (has_slots) expect_per_text(p, op, 2, p.shape(op.inputs.at(0))[0]);
  return cache_outputs(p, op, 0, has_slots);
}

/// Pure traffic: a copy.
Cost cost_append(const Program& p, const Op& op) {
  const Shape& latent = p.shape(op.inputs.at(0));
  const Count bytes = row_bytes(p, op, latent[0], latent[1]);
  return {.bytes_read = bytes, .bytes_written = bytes};
}

std::vector<Tensor> infer_decode(const Program& p, const Op& op) {
  const Shape& q = p.shape(op.inputs.at(0));
  const Shape& latent = p.shape(op.inputs.at(1));
  const Count heads = op.attrs.integer("heads");
  const Count v_dim = op.attrs.integer("v_dim");
  const Count plain = Count(op.attrs.integer("qk_dim")) - p.shape(op.inputs.at(2))[-1];
  std::vector<Tensor> caches = cache_outputs(p, op, 1, false);
  const Shape w{heads * (plain + v_dim), latent[-1]};
  expect(q == Shape{q[0], 1, heads * op.attrs.integer("qk_dim")} && p.shape(op.inputs.at(4)) == w, op, [&] {
    return fmt::format("queries {} and weights {} of {} heads", q.str(), p.shape(op.inputs[4]).str(),
                       std::int64_t{heads});
  });
  expect_per_text(p, op, 3, q[0]);
  std::vector<Tensor> outputs = {{.shape = {q[0], 1, heads * v_dim}}};
  outputs.insert(outputs.end(), caches.begin(), caches.end());
  return outputs;
}

/// Per head two matmuls with the rows of w, and per score two with the cached row, which all heads share, and
/// 5 elementwise FLOP. Reads w, and `keys` rows of the caches.
Cost cost_decode(const Program& p, const Op& op) {
  const Count texts = p.shape(op.inputs.at(0))[0];
  const Count keys = op.attrs.integer("keys");
  const Count rank = p.shape(op.inputs.at(1))[-1];
  const Count scores = texts * op.attrs.integer("heads") * keys;
  const Tensor& w = p.tensor(op.inputs.at(4));
  return {.matmul_flop = 2 * texts * w.shape.numel() + 2 * scores * (2 * rank + p.shape(op.inputs.at(2))[-1]),
          .elementwise_flop = 5 * scores,
          .bytes_read = row_bytes(p, op, texts, keys) + w.bytes() + p.tensor(op.inputs[0]).bytes(),
          .bytes_written = row_bytes(p, op, texts, 1) + p.tensor(op.outputs.at(0)).bytes()};
}

}  // namespace

const OpDef kAppendLatents{
    .name = "append_latents", .work = Work::copy, .infer = infer_append, .cost = cost_append};
const OpDef kDecodeLatentAttention{.name = "decode_latent_attention",
                                   .work = Work::attention,
                                   .infer = infer_decode,
                                   .cost = cost_decode,
                                   .weights_in_compute_dtype = true};

}  // namespace rooflm::program::ops
