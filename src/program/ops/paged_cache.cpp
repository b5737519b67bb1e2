// Generation with keys and values in blocks (Kwon et al., "PagedAttention", SOSP 2023): caches k and v [S, K,
// G, D] are a pool of S blocks of G positions, and a table says which block has which positions of a text.
// Rows of one run may be of any texts, also several of one: a part of its prompt, or tokens that are only
// guessed.
//   paged_attention (qkv [N, 1, (H + 2K) D], first [N] int32, blocks [N, M] int32, k, v) -> y [N, 1, H D]:
//   row n is at position first[n] of a text whose position p is row p % G of block blocks[n, p / G]. The keys
//   and values of all rows are written before any is read; then y[n] is that of decode_attention over
//   positions 0 .. first[n]. Rows that write to the same place must be padding. Attributes and sinks as of
//   decode_attention. pick_rows (x [N, 1, C], rows [R] int32) -> y [R, 1, C]: y[r] = x[rows[r]].
#include <fmt/format.h>

#include "core/checked.h"
#include "program/ops/per_text.h"
#include "program/ops/sinks.h"
#include "program/paged_ops.h"

namespace rooflm::program::ops {
namespace {

using core::Count;
using core::Shape;

constexpr std::size_t kBlocks = 2, kKeys = 3;

std::vector<Tensor> infer_paged(const Program& p, const Op& op) {
  const Shape& qkv = p.shape(op.inputs.at(0));
  const std::int64_t heads = op.attrs.integer("heads");
  const std::int64_t kv_heads = op.attrs.integer("kv_heads");
  const Count d = op.attrs.integer("head_dim");
  const Shape expected{qkv[0], 1, (heads + 2 * Count(kv_heads)) * d};
  expect(qkv == expected, op, [&] { return fmt::format("expected {}, got {}", expected.str(), qkv.str()); });
  expect_per_text(p, op, 1, qkv[0]);
  const Tensor& blocks = p.tensor(op.inputs.at(kBlocks));
  expect(blocks.dtype == core::DType::i32 && blocks.shape.rank() == 2 && blocks.shape[0] == qkv[0], op,
         [&] { return fmt::format("expected a row of blocks for each of {} rows", qkv[0]); });
  std::vector<Tensor> outputs = {{.shape = {qkv[0], 1, heads * d}}};
  for (const std::size_t i : {kKeys, kKeys + 1}) {
    const Shape& cache = p.shape(op.inputs.at(i));
    expect(cache.rank() == 4 && cache == Shape{cache[0], kv_heads, cache[2], d}, op, [&] {
      return fmt::format("expected blocks [S, {}, G, {}], got {}", kv_heads, std::int64_t{d}, cache.str());
    });
    outputs.push_back({.shape = cache, .role = Role::cache});
  }
  expect_sinks(p, op, heads);
  return outputs;
}

/// As decode_attention.
Cost cost_paged(const Program& p, const Op& op) {
  const Count rows = p.shape(op.inputs.at(0))[0];
  const Count keys = op.attrs.integer("keys");
  const Count scores = rows * op.attrs.integer("heads") * keys;
  const Count row = 2 * Count(op.attrs.integer("kv_heads")) * op.attrs.integer("head_dim") *
                    static_cast<std::int64_t>(core::size_of(p.tensor(op.outputs.at(1)).dtype));
  return {.matmul_flop = 4 * scores * op.attrs.integer("head_dim"),
          .elementwise_flop = 5 * scores,
          .bytes_read = rows * keys * row + p.tensor(op.inputs[0]).bytes(),
          .bytes_written = rows * row + p.tensor(op.outputs.at(0)).bytes()};
}

std::vector<Tensor> infer_pick(const Program& p, const Op& op) {
  const Shape& x = p.shape(op.inputs.at(0));
  const Tensor& rows = p.tensor(op.inputs.at(1));
  expect(x.rank() == 3 && x[1] == 1, op, [&] { return fmt::format("expected [N, 1, C], got {}", x.str()); });
  expect(rows.dtype == core::DType::i32 && rows.shape.rank() == 1, op,
         [&] { return fmt::format("expected numbers of rows, got {}", rows.shape.str()); });
  return {{.shape = {rows.shape[0], 1, x[2]}}};
}

/// Pure traffic.
Cost cost_pick(const Program& p, const Op& op) {
  const Count bytes = p.tensor(op.outputs.at(0)).bytes();
  return {.bytes_read = bytes, .bytes_written = bytes};
}

}  // namespace

const OpDef kPagedAttention{
    .name = "paged_attention", .work = Work::attention, .infer = infer_paged, .cost = cost_paged};
const OpDef kPickRows{.name = "pick_rows", .work = Work::copy, .infer = infer_pick, .cost = cost_pick};

}  // namespace rooflm::program::ops
