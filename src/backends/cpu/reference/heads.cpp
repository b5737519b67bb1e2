// Splits and merges heads: packed projections [B, T, (H + 2K) D] to q [B, H, T, D], k and v [B, K, T, D], and
// back. Copies rows of D elements as bytes.
#include <cstring>

#include "backends/cpu/reference/operand.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

/// B, T, and bytes per row of a head.
struct Extents {
  std::int64_t batch, seq, heads, kv_heads;
  std::size_t row_bytes;
};

/// Whether all operands have the dtype of the first input: nothing is converted here.
bool same_types(const OpView& v) {
  const auto is_same = [&](program::TensorId id) { return v.program.tensor(id).dtype == v.in(0).dtype; };
  return std::all_of(v.op.inputs.begin(), v.op.inputs.end(), is_same) &&
         std::all_of(v.op.outputs.begin(), v.op.outputs.end(), is_same);
}

Extents extents_of(const OpView& v, std::int64_t batch, std::int64_t seq) {
  return {batch, seq, v.integer("heads"), v.integer("kv_heads"),
          static_cast<std::size_t>(v.integer("head_dim")) * core::size_of(v.in(0).dtype)};
}

/// Copies between the packed tensor [B, T, all_heads, D], from head `first` on, and heads [B, count, T, D].
template <bool kSplit>
void move(const Extents& e, std::int64_t all_heads, std::int64_t first, std::int64_t count, void* packed,
          void* heads) {
  for_rows(e.batch * count, [&](std::int64_t task) {
    const std::int64_t b = task / count;
    const std::int64_t h = task % count;
    for (std::int64_t t = 0; t < e.seq; ++t) {
      std::byte* whole = static_cast<std::byte*>(packed) +
                         static_cast<std::size_t>((b * e.seq + t) * all_heads + first + h) * e.row_bytes;
      std::byte* part =
          static_cast<std::byte*>(heads) + static_cast<std::size_t>(task * e.seq + t) * e.row_bytes;
      std::memcpy(kSplit ? part : whole, kSplit ? whole : part, e.row_bytes);
    }
  });
}

template <bool kSplit>
void move_qkv(const Extents& e, void* packed, std::span<void* const> qkv) {
  const std::int64_t all_heads = e.heads + 2 * e.kv_heads;
  move<kSplit>(e, all_heads, 0, e.heads, packed, qkv[0]);
  move<kSplit>(e, all_heads, e.heads, e.kv_heads, packed, qkv[1]);
  move<kSplit>(e, all_heads, e.heads + e.kv_heads, e.kv_heads, packed, qkv[2]);
}

}  // namespace

Kernel make_split_heads(const OpView& v) {
  if (!same_types(v)) return {};
  const Extents e = extents_of(v, v.in(0).shape[0], v.in(0).shape[1]);
  return [e](const KernelArgs& args) { move_qkv<true>(e, args.in[0], args.out); };
}

Kernel make_join_heads(const OpView& v) {
  if (!same_types(v)) return {};
  const Extents e = extents_of(v, v.out(0).shape[0], v.out(0).shape[1]);
  return [e](const KernelArgs& args) { move_qkv<false>(e, args.out[0], args.in); };
}

Kernel make_merge_heads(const OpView& v) {
  if (!same_types(v)) return {};
  const Extents e = extents_of(v, v.in(0).shape[0], v.in(0).shape[2]);
  return [e](const KernelArgs& args) { move<false>(e, e.heads, 0, e.heads, args.out[0], args.in[0]); };
}

Kernel make_unmerge_heads(const OpView& v) {
  if (!same_types(v)) return {};
  const Extents e = extents_of(v, v.in(0).shape[0], v.in(0).shape[1]);
  return [e](const KernelArgs& args) { move<true>(e, e.heads, 0, e.heads, args.in[0], args.out[0]); };
}

MakerRows heads_rows() {
  namespace ops = program::ops;
  return {{&ops::kSplitHeads, make_split_heads, "reference::split_heads"},
          {&ops::kJoinHeads, make_join_heads, "reference::join_heads"},
          {&ops::kMergeHeads, make_merge_heads, "reference::merge_heads"},
          {&ops::kUnmergeHeads, make_unmerge_heads, "reference::unmerge_heads"}};
}

}  // namespace rooflm::backends::cpu::reference
