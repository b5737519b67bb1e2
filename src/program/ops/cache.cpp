// Generation with a key/value cache: k and v [B, K, P, D], P positions, updated in place. `first` [B] int32
// is the position of each text's first new row, so the length of a text is an input of a run and not part of
// the program.
//   append_cache (qkv [B, T, (H + 2K) D], k, v): rows 0 .. T - 1 of k and v become those of qkv. With `slots`
//   [B] int32 before k and v [S, K, P, D], S >= B, text b goes to slots[b]; the other slots do not change.
//   decode_attention (qkv [B, 1, (H + 2K) D], first, k, v) -> y [B, 1, H D]: row first[b] of k and v becomes
//   that of qkv; then y = softmax(q k^T / sqrt(D)) v over rows 0 .. first[b]. Query head h uses key/value
//   head h / (H/K). The attribute `keys` is the number of rows that the cost counts. Optional, as of
//   attention: window, cap, scale, alibi, and a last input sinks [H].
//   paged_attention (qkv [N, 1, (H + 2K) D], first [N], blocks [N, M] int32, k, v) -> y [N, 1, H D]: keys and
//   values are in a pool [S, K, G, D] of S blocks of G positions (Kwon et al., "PagedAttention", SOSP 2023).
//   Row n is at position first[n] of a text whose position p is row p % G of block blocks[n, p / G]. Rows may
//   be of any texts, also several of one: a part of its prompt, or tokens that are only guessed. The keys and
//   values of all rows are written before any is read; then y[n] is that of decode_attention. Rows that write
//   to the same place must be padding.
//   last_rows (x [B, T, C], lengths [B] int32) -> y [B, 1, C]: y[b] = x[b, lengths[b] - 1].
//   pick_rows (x [N, 1, C], rows [R] int32) -> y [R, 1, C]: y[r] = x[rows[r]].
// Attributes: heads, kv_heads, head_dim; keys.
#include <fmt/format.h>

#include "core/checked.h"
#include "program/ops.h"
#include "program/ops/per_text.h"
#include "program/ops/sinks.h"

namespace rooflm::program::ops {
namespace {

using core::Count;
using core::Shape;

/// Caches: one of each text, at least as many, or any number of blocks.
enum class Places : std::uint8_t { own, slots, pool };

/// The caches are inputs `keys` and `keys` + 1. They are outputs, too: the op writes them in place.
std::vector<Tensor> cache_outputs(const Program& p, const Op& op, std::size_t keys, Places places) {
  const Shape& qkv = p.shape(op.inputs.at(0));
  const std::int64_t kv_heads = op.attrs.integer("kv_heads");
  const Count d = op.attrs.integer("head_dim");
  const std::int64_t width = (op.attrs.integer("heads") + 2 * Count(kv_heads)) * d;
  expect(qkv.rank() == 3 && qkv[2] == width, op,
         [&] { return fmt::format("expected [B, T, {}], got {}", width, qkv.str()); });
  std::vector<Tensor> outputs;
  for (const std::size_t i : {keys, keys + 1}) {
    const Shape& cache = p.shape(op.inputs.at(i));
    const std::int64_t fewest = places == Places::pool ? 1 : qkv[0];
    const bool fits = cache.rank() == 4 && cache == Shape{cache[0], kv_heads, cache[2], d} &&
                      cache[2] >= qkv[1] && cache[0] >= fewest &&
                      (places != Places::own || cache[0] == fewest);
    expect(fits, op, [&] {
      return fmt::format("expected a cache [{}{}, {}, >= {}, {}], got {}",
                         places == Places::own ? "" : ">= ", fewest, kv_heads, qkv[1], std::int64_t{d},
                         cache.str());
    });
    outputs.push_back({.shape = cache, .role = Role::cache});
  }
  return outputs;
}

Count cached_element_bytes(const Program& p, TensorId id) {
  return static_cast<std::int64_t>(core::size_of(p.tensor(id).dtype));
}

/// Bytes of `rows` rows of keys and values of all texts.
Count row_bytes(const Program& p, const Op& op, Count rows) {
  const Count batch = p.shape(op.inputs.at(0))[0];
  return 2 * batch * op.attrs.integer("kv_heads") * op.attrs.integer("head_dim") * rows *
         cached_element_bytes(p, op.outputs.back());
}

std::vector<Tensor> infer_append(const Program& p, const Op& op) {
  constexpr std::size_t kWithSlots = 4;
  const bool has_slots = op.inputs.size() == kWithSlots;
  if (has_slots) expect_per_text(p, op, 1, p.shape(op.inputs.at(0))[0]);
  return cache_outputs(p, op, op.inputs.size() - 2, has_slots ? Places::slots : Places::own);
}

/// Pure traffic: a copy.
Cost cost_append(const Program& p, const Op& op) {
  const Count bytes = row_bytes(p, op, p.shape(op.inputs.at(0))[1]);
  return {.bytes_read = bytes, .bytes_written = bytes};
}

/// Of decode_attention and paged_attention.
std::vector<Tensor> infer_decode(const Program& p, const Op& op) {
  const Shape& qkv = p.shape(op.inputs.at(0));
  const bool is_paged = op.is(kPagedAttention);
  std::vector<Tensor> caches = cache_outputs(p, op, is_paged ? 3 : 2, is_paged ? Places::pool : Places::own);
  expect(qkv[1] == 1, op, [&] { return fmt::format("expected one row of each text, got {}", qkv[1]); });
  expect_per_text(p, op, 1, qkv[0]);
  if (is_paged) {
    const Tensor& blocks = p.tensor(op.inputs.at(2));
    expect(blocks.dtype == core::DType::i32 && blocks.shape.rank() == 2 && blocks.shape[0] == qkv[0], op,
           [&] { return fmt::format("expected a row of blocks for each of {} rows", qkv[0]); });
  }
  expect_sinks(p, op, op.attrs.integer("heads"));
  const Count d = op.attrs.integer("head_dim");
  std::vector<Tensor> outputs = {{.shape = {qkv[0], 1, op.attrs.integer("heads") * d}}};
  outputs.insert(outputs.end(), caches.begin(), caches.end());
  return outputs;
}

/// As `attention`: two matmuls of 2D FLOP and 5 elementwise FLOP per score, `keys` scores per query head.
/// Reads that many rows of the cache and writes one.
Cost cost_decode(const Program& p, const Op& op) {
  const Count keys = op.attrs.integer("keys");
  const Count scores = Count(p.shape(op.inputs.at(0))[0]) * op.attrs.integer("heads") * keys;
  return {.matmul_flop = 4 * scores * op.attrs.integer("head_dim"),
          .elementwise_flop = 5 * scores,
          .bytes_read = row_bytes(p, op, keys) + p.tensor(op.inputs[0]).bytes(),
          .bytes_written = row_bytes(p, op, 1) + p.tensor(op.outputs.at(0)).bytes()};
}

std::vector<Tensor> infer_last_rows(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  expect(x.rank() == 3, op, [&] { return fmt::format("expected [B, T, C], got {}", x.str()); });
  expect_per_text(p, op, 1, x[0]);
  return {{.shape = {x[0], 1, x[2]}}};
}

std::vector<Tensor> infer_pick(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  const Tensor& rows = p.tensor(op.inputs.at(1));
  expect(x.rank() == 3 && x[1] == 1, op, [&] { return fmt::format("expected [N, 1, C], got {}", x.str()); });
  expect(rows.dtype == core::DType::i32 && rows.shape.rank() == 1, op,
         [&] { return fmt::format("expected numbers of rows, got {}", rows.shape.str()); });
  return {{.shape = {rows.shape[0], 1, x[2]}}};
}

/// Pure traffic: a gather of rows.
Cost cost_gather(const Program& p, const Op& op) {
  const Count bytes = p.tensor(op.outputs.at(0)).bytes();
  return {.bytes_read = bytes, .bytes_written = bytes};
}

}  // namespace

const OpDef kAppendCache{
    .name = "append_cache", .work = Work::copy, .infer = infer_append, .cost = cost_append};
const OpDef kDecodeAttention{
    .name = "decode_attention", .work = Work::attention, .infer = infer_decode, .cost = cost_decode};
const OpDef kPagedAttention{
    .name = "paged_attention", .work = Work::attention, .infer = infer_decode, .cost = cost_decode};
const OpDef kLastRows{.name = "last_rows", .work = Work::copy, .infer = infer_last_rows, .cost = cost_gather};
const OpDef kPickRows{.name = "pick_rows", .work = Work::copy, .infer = infer_pick, .cost = cost_gather};

}  // namespace rooflm::program::ops
