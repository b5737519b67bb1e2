// Binds the kernels of key/value caches to their ops.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdint>
#include <memory>

#include "backends/cuda/check.h"
#include "backends/cuda/kernels/attention/decode_attention.h"
#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {

/// kernels/cache.cu: rows 0 .. seq - 1 of k and v [S, K, P, D] become those of qkv [B, seq, (H + 2K) D]. Text
/// b uses slot slots[b] < S, or slot b if slots is nullptr.
void launch_append_cache(Stream stream, core::DType dtype, const DecodeShape& shape, std::int64_t seq,
                         const void* qkv, const std::int32_t* slots, void* k, void* v);
/// y[b, :] = x[b, lengths[b] - 1, :] of x [B, seq, cols].
void launch_last_rows(Stream stream, core::DType dtype, std::int64_t batch, std::int64_t seq,
                      std::int64_t cols, const void* x, const std::int32_t* lengths, void* y);
/// y[r, :] = x[rows[r], :] of x [count, cols], r < picked.
void launch_pick_rows(Stream stream, core::DType dtype, std::int64_t count, std::int64_t picked,
                      std::int64_t cols, const void* x, const std::int32_t* rows, void* y);

namespace {

using core::DType;

DecodeShape shape_of(const OpView& v, std::int64_t positions) {
  return {.batch = v.in(0).shape[0],
          .heads = v.integer("heads"),
          .kv_heads = v.integer("kv_heads"),
          .head_dim = v.integer("head_dim"),
          .positions = positions,
          .rules = rules_of(v.op, positions)};
}

}  // namespace

/// Inputs: qkv, k, v; with slots between. Outputs: k, v.
Kernel make_append_cache(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0, 1}, dtype)) return {};
  return [context = v.context, dtype, shape = shape_of(v, v.out(0).shape[2]), seq = v.in(0).shape[1],
          has_slots = v.op.inputs.size() == 4](const KernelArgs& args) {
    launch_append_cache(context->stream(), dtype, shape, seq, args.in[0],
                        has_slots ? ids(args.in[1]) : nullptr, args.out[0], args.out[1]);
  };
}

/// Of decode_attention and paged_attention. Inputs: qkv, first [, blocks], k, v [, sinks]. Outputs: y, k, v.
Kernel make_decode_attention(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const bool is_paged = v.op.is(program::ops::kPagedAttention);
  const std::size_t keys = is_paged ? 3 : 2;
  const std::int64_t block = v.in(keys).shape[2];
  CacheBlocks cache{.block = static_cast<int>(block)};
  if (is_paged) cache.width = static_cast<int>(v.in(2).shape[1]);
  const DecodeShape shape = shape_of(v, is_paged ? block * cache.width : block);
  if (!is_storage(dtype) || !v.outputs_are({0, 1, 2}, dtype) || shape.head_dim > kMostDecodeDim) return {};
  const int parts = decode_parts(shape, v.context->sm_count());
  const std::size_t bytes = decode_workspace_bytes(shape, parts);
  void* workspace = v.context->scratch(bytes);
  const std::size_t counter_bytes = decode_counter_bytes(shape);
  const auto counters = std::make_shared<DeviceMemory>(v.context->allocate(counter_bytes));
  check(cudaMemsetAsync(counters->data(), 0, counter_bytes, v.context->stream()), "zeroing counters");
  const auto run = [=, context = v.context, sinks = SinksInput(v, keys + 2)](const KernelArgs& args) {
    const Stream stream = context->stream();
    const std::int32_t* first = ids(args.in[1]);
    if (is_paged) {
      CacheBlocks of_rows = cache;
      of_rows.blocks = ids(args.in[2]);
      launch_paged_attention(stream, dtype, shape, of_rows, parts, args.in[0], first, args.out[1],
                             args.out[2], args.out[0], workspace, counters->data(), sinks.of(args));
    } else {
      launch_decode_attention(stream, dtype, shape, parts, args.in[0], first, args.out[1], args.out[2],
                              args.out[0], workspace, counters->data(), sinks.of(args));
    }
  };
  return {run,
          {.variant = fmt::format("{} parts", parts),
           .workspace_bytes = as_bytes(bytes + counter_bytes),
           .launches = is_paged ? 2 : 1}};
}

/// Inputs: x, lengths.
Kernel make_last_rows(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, dtype)) return {};
  const core::Shape x = v.in(0).shape;
  return [context = v.context, dtype, x](const KernelArgs& args) {
    launch_last_rows(context->stream(), dtype, x[0], x[1], x[2], args.in[0], ids(args.in[1]), args.out[0]);
  };
}

/// Inputs: x, rows.
Kernel make_pick_rows(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, dtype)) return {};
  const core::Shape x = v.in(0).shape;
  return [context = v.context, dtype, x, picked = v.out(0).shape[0]](const KernelArgs& args) {
    launch_pick_rows(context->stream(), dtype, x[0], picked, x[2], args.in[0], ids(args.in[1]), args.out[0]);
  };
}

MakerRows cache_rows() {
  namespace ops = program::ops;
  return {{&ops::kAppendCache, make_append_cache, "append_cache"},
          {&ops::kDecodeAttention, make_decode_attention, "decode_attention"},
          {&ops::kPagedAttention, make_decode_attention, "paged_attention"},
          {&ops::kLastRows, make_last_rows, "last_rows"},
          {&ops::kPickRows, make_pick_rows, "pick_rows"}};
}

}  // namespace rooflm::backends::cuda
