// Flash attention, forward: one task per tile of queries.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "backends/cpu/fast/attention.h"
#include "backends/cpu/fast/attention_query_tile.h"
#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "core/error.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {
namespace {

template <TileElement E, Storage S>
void forward(const AttentionShape& shape, const AttentionLayout& l, const S* qkv, const S* keys_values, S* o,
             float* lse, void* scratch, const float* sinks) {
  // Head by head, so keys and values stay in cache; within a head the longest tile first.
  parallel_tasks(shape.batch * shape.heads * l.query_tiles, [&](std::int64_t task, int worker) {
    const std::int64_t head_task = task / l.query_tiles;
    const std::int64_t tile = l.query_tiles - 1 - task % l.query_tiles;
    const std::int64_t batch = head_task / shape.heads;
    const std::int64_t head = head_task % shape.heads;
    const S* row = qkv + batch * l.seq * l.qkv_stride;
    const S* kv = keys_values + batch * l.seq * l.kv_stride + head / l.group * l.dim;
    const std::int64_t query = l.first_query + tile * kQ;
    const auto keys_at = [&](std::int64_t key, std::int64_t /*count*/) {
      const S* at = kv + key * l.kv_stride;
      return KeysOf<S>{at + l.key_begin, at + l.value_begin, l.kv_stride};
    };
    query_tile(l, ScoreForm(l, head), query, std::min(kQ, l.seq - query),
               row + query * l.qkv_stride + head * l.dim, keys_at,
               o + (batch * l.seq + query) * l.o_stride + head * l.dim, lse + head_task * l.seq + query,
               sinks == nullptr ? nullptr : sinks + head, Workspace<E>(scratch, l, worker));
  });
}

template <Storage S>
void forward_of(const AttentionShape& shape, const AttentionLayout& l, const S* qkv, const S* keys_values,
                S* o, float* lse, void* scratch, const float* sinks = nullptr) {
  check_attention(shape);
  with_elements<S>(l.dim,
                   [&]<TileElement E>(E) { forward<E>(shape, l, qkv, keys_values, o, lse, scratch, sinks); });
}

// The result of queries that see no key.
template <Storage S>
void fill_unseen(const AttentionShape& shape, const AttentionLayout& l, S* o, float* lse) {
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    S* rows = o + b * l.seq * l.o_stride;
    std::memset(static_cast<void*>(rows), 0,
                static_cast<std::size_t>(l.first_query * l.o_stride) * sizeof(S));
  }
  for (std::int64_t head = 0; head < shape.batch * shape.heads; ++head)
    std::fill_n(lse + head * l.seq, l.first_query, -std::numeric_limits<float>::infinity());
}

}  // namespace

std::size_t attention_forward_scratch_bytes(const AttentionShape& shape) {
  check_attention(shape);
  return static_cast<std::size_t>(thread_count() * Workspace<float>::floats(AttentionLayout(shape))) *
         sizeof(float);
}

template <Storage S>
void attention_forward(const AttentionShape& shape, const S* qkv, S* o, float* lse, void* scratch,
                       const float* sinks) {
  forward_of(shape, AttentionLayout(shape), qkv, qkv, o, lse, scratch, sinks);
}
template void attention_forward(const AttentionShape&, const float*, float*, float*, void*, const float*);
template void attention_forward(const AttentionShape&, const core::Bf16*, core::Bf16*, float*, void*,
                                const float*);

template <Storage S>
void attention_block_forward(const AttentionShape& shape, const S* qkv, const S* keys_values, S* o,
                             float* lse, void* scratch) {
  const AttentionLayout l(shape, KeyRows::apart);
  fill_unseen(shape, l, o, lse);
  forward_of(shape, l, qkv, keys_values, o, lse, scratch);
}
template void attention_block_forward(const AttentionShape&, const float*, const float*, float*, float*,
                                      void*);
template void attention_block_forward(const AttentionShape&, const core::Bf16*, const core::Bf16*,
                                      core::Bf16*, float*, void*);

void check_attention(const AttentionShape& s) {
  if (s.batch < 1 || s.seq < 1 || s.heads < 1 || s.kv_heads < 1 || s.head_dim < 1) {
    throw core::UsageError(
        fmt::format("attention [{}, {}] with {} heads, {} key/value heads of size {}: every "
                    "extent must be at least 1",
                    s.batch, s.seq, s.heads, s.kv_heads, s.head_dim));
  }
  if (s.heads % s.kv_heads != 0) {
    throw core::UsageError(
        fmt::format("attention: {} key/value heads do not divide {} heads", s.kv_heads, s.heads));
  }
}

namespace {

// FLOP of one matmul [T, D] x [D, T], or of its visible part.
double matmul_flop(const AttentionShape& s) {
  const auto seq = static_cast<double>(s.seq);
  const auto unseen = static_cast<double>(s.window > 0 ? std::max<std::int64_t>(0, s.seq - s.window) : 0);
  const double scores = s.causal ? seq * (seq + 1) / 2 - unseen * (unseen + 1) / 2 : seq * seq;
  return 2.0 * static_cast<double>(s.batch * s.heads * s.head_dim) * scores;
}

}  // namespace

double attention_forward_flop(const AttentionShape& shape) { return 2 * matmul_flop(shape); }
double attention_backward_flop(const AttentionShape& shape) { return 5 * matmul_flop(shape); }

}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {

Kernel make_flash_attention(const OpView& v) {
  if (has_reference_scores(v)) return {};
  if (!v.outputs_are({0}, v.in(0).dtype) || !v.outputs_are({1}, DType::f32)) return {};
  const bool has_sinks = v.has_in(1);
  if (has_sinks && !v.inputs_are({1}, DType::f32)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const AttentionShape shape = attention_shape(v, v.in(0).shape);
    const std::size_t scratch_bytes = attention_forward_scratch_bytes(shape);
    v.context->scratch().reserve(scratch_bytes);
    const auto run = [shape, has_sinks, resources = v.context](const KernelArgs& args) {
      attention_forward(shape, static_cast<const S*>(args.in[0]), static_cast<S*>(args.out[0]),
                        static_cast<float*>(args.out[1]), resources->scratch().data(),
                        has_sinks ? static_cast<const float*>(args.in[1]) : nullptr);
    };
    return {run, {.workspace_bytes = static_cast<std::int64_t>(scratch_bytes)}};
  });
}

Kernel make_attention_block(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!program::beyond_plain(v.op).empty()) return {};
  if (!v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype) || !v.outputs_are({1}, DType::f32)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const AttentionShape shape = block_shape(v, v.in(0).shape);
    const std::size_t scratch_bytes = attention_forward_scratch_bytes(shape);
    v.context->scratch().reserve(scratch_bytes);
    const auto run = [shape, resources = v.context](const KernelArgs& args) {
      attention_block_forward(shape, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
                              static_cast<S*>(args.out[0]), static_cast<float*>(args.out[1]),
                              resources->scratch().data());
    };
    return {run, {.workspace_bytes = static_cast<std::int64_t>(scratch_bytes)}};
  });
}

MakerRows attention_forward_rows() {
  namespace ops = program::ops;
  return {{&ops::kFlashAttention, make_flash_attention, "attention_forward"},
          {&ops::kAttentionBlock, make_attention_block, "attention_block_forward"}};
}

}  // namespace rooflm::backends::cpu::fast
