// Binds embeddings to their ops.
#include <cuda_runtime_api.h>

#include "backends/cuda/check.h"
#include "backends/cuda/kernels/embedding.h"
#include "backends/cuda/rows/rows.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

/// `x`: a tensor [B, T, C].
EmbeddingShape shape_of(const OpView& v, const program::Tensor& x) {
  return {.batch = x.shape[0], .seq = x.shape[1], .cols = x.shape[-1], .places = places_of(v, x.shape[1])};
}

/// Bytes of the rows before that of position 0, in a table with elements of `element_bytes`.
std::size_t offset_bytes(const OpView& v, std::int64_t cols, std::size_t element_bytes) {
  return v.op.attrs.has("offset") ? static_cast<std::size_t>(v.integer("offset") * cols) * element_bytes : 0;
}

const void* behind(const void* data, std::size_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

}  // namespace

/// embedding; and embedding_positions, with a third input, and a fourth when generation continues texts.
Kernel make_embedding(const OpView& v) {
  const DType dtype = v.in(1).dtype;
  if (!is_storage(dtype) || !v.inputs_are({2}, dtype) || !v.outputs_are({0}, dtype)) return {};
  const std::int64_t vocab = v.in(1).shape[0];
  const bool has_positions = v.has_in(2);
  const bool has_first = v.has_in(3);
  const EmbeddingShape shape = shape_of(v, v.out(0));
  const auto checked = v.context->ids().add({.what = "token", .count = shape.rows(), .limit = vocab});
  const std::size_t offset = offset_bytes(v, shape.cols, core::size_of(dtype));
  return [=, context = v.context](const KernelArgs& args) {
    checked->ids = ids(args.in[0]);
    launch_embedding(context->stream(), dtype, shape, vocab, checked->ids, args.in[1],
                     has_positions ? behind(args.in[2], offset) : nullptr,
                     has_first ? ids(args.in[3]) : nullptr, args.out[0], context->ids().flag());
  };
}

/// Inputs: tokens, dx.
Kernel make_embedding_backward(const OpView& v) {
  const DType dtype = v.in(1).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, DType::f32)) return {};
  const EmbeddingShape shape = shape_of(v, v.in(1));
  const std::int64_t vocab = v.out(0).shape[0];
  const std::size_t bytes = embedding_backward_workspace_bytes(shape.rows(), vocab);
  void* workspace = v.context->scratch(bytes);
  const auto run = [=, context = v.context, accumulate = v.accumulates()](const KernelArgs& args) {
    launch_embedding_backward(context->stream(), dtype, shape, vocab, ids(args.in[0]), args.in[1],
                              floats(args.out[0]), accumulate, workspace);
  };
  // The number of launches of CUB's sort depends on its version.
  return {run, {.workspace_bytes = as_bytes(bytes), .launches = std::nullopt}};
}

Kernel make_add_positions(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype)) return {};
  const EmbeddingShape shape = shape_of(v, v.in(0));
  return [context = v.context, dtype, shape, offset = offset_bytes(v, shape.cols, core::size_of(dtype)),
          has_first = v.has_in(2)](const KernelArgs& args) {
    launch_add_positions(context->stream(), dtype, shape, args.in[0], behind(args.in[1], offset),
                         has_first ? ids(args.in[2]) : nullptr, args.out[0]);
  };
}

Kernel make_add_positions_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.outputs_are({0}, DType::f32)) return {};
  const std::int64_t offset = v.op.attrs.has("offset") ? v.integer("offset") : 0;
  const std::int64_t positions = v.out(0).shape[0] - offset;
  return [=, context = v.context, shape = shape_of(v, v.in(0)),
          accumulate = v.accumulates()](const KernelArgs& args) {
    const std::int64_t before = offset * shape.cols;
    if (before > 0 && !accumulate) {
      check(cudaMemsetAsync(args.out[0], 0, static_cast<std::size_t>(before) * sizeof(float),
                            context->stream()),
            "zeroing rows before the first position");
    }
    launch_add_positions_backward(context->stream(), dtype, shape, positions, args.in[0],
                                  floats(args.out[0]) + before, accumulate);
  };
}

MakerRows tokens_rows() {
  namespace ops = program::ops;
  return {{&ops::kEmbedding, make_embedding, "embedding"},
          {&ops::kEmbeddingPositions, make_embedding, "embedding"},
          {&ops::kEmbeddingBackward, make_embedding_backward, "add_rows"},
          {&ops::kAddPositions, make_add_positions, "add_positions"},
          {&ops::kAddPositionsBackward, make_add_positions_backward, "add_positions_backward"}};
}

}  // namespace rooflm::backends::cuda
