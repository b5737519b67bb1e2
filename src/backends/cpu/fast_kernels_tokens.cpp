// Fast kernels, bound to ops: embeddings at the beginning of a model, cross-entropy at its end.
#include "backends/cpu/fast/elementwise.h"
#include "backends/cpu/fast/embedding.h"
#include "backends/cpu/fast/loss.h"
#include "backends/cpu/fast_kernels.h"
#include "backends/cpu/loss_with_gradient.h"
#include "backends/cpu/token_ids.h"

namespace rooflm::backends::cpu::fast {
namespace {

using core::DType;

const std::int32_t* ids(const void* data) { return static_cast<const std::int32_t*>(data); }

LossShape loss_shape(const OpView& v) {
  return {.rows = v.integer("rows"), .cols = v.in(0).shape[-1], .valid = v.integer("valid")};
}

}  // namespace

/// embedding, and embedding_positions, which has a third input.
Kernel make_embedding(const OpView& v) {
  const DType dtype = v.in(1).dtype;
  if (!inputs_are(v, {2}, dtype) || !outputs_are(v, {0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const EmbeddingShape shape{v.in(0).shape[0], v.in(0).shape[1], v.in(1).shape[1]};
    const std::int64_t vocab = v.in(1).shape[0];
    const bool has_positions = v.has_in(2);
    return [=](const KernelArgs& args) {
      check_ids(ids(args.in[0]), shape.batch * shape.seq, vocab, "token");
      embedding_forward(shape, ids(args.in[0]), static_cast<const S*>(args.in[1]),
                        has_positions ? static_cast<const S*>(args.in[2]) : nullptr,
                        static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_embedding_backward(const OpView& v) {
  if (!outputs_are(v, {0}, DType::f32)) return {};
  return with_storage(v.in(1).dtype, [&]<class S>(S) -> Kernel {
    const EmbeddingShape shape{v.in(0).shape[0], v.in(0).shape[1], v.out(0).shape[1]};
    const std::int64_t vocab = v.out(0).shape[0];
    return [=, accumulate = v.accumulates()](const KernelArgs& args) {
      check_ids(ids(args.in[0]), shape.batch * shape.seq, vocab, "token");
      auto* table = static_cast<float*>(args.out[0]);
      if (!accumulate) fill(vocab * shape.cols, 0.0F, table);
      embedding_backward(shape, ids(args.in[0]), static_cast<const S*>(args.in[1]), table);
    };
  });
}

Kernel make_add_positions_backward(const OpView& v) {
  if (!outputs_are(v, {0}, DType::f32)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const core::Shape& dy = v.in(0).shape;
    const EmbeddingShape shape{dy[0], dy[1], dy[2]};
    const std::int64_t used = shape.seq * shape.cols;
    const std::int64_t unused = v.out(0).shape.numel() - used;
    return [=, accumulate = v.accumulates()](const KernelArgs& args) {
      auto* positions = static_cast<float*>(args.out[0]);
      position_embedding_backward(shape, static_cast<const S*>(args.in[0]), positions, accumulate);
      if (!accumulate) fill(unused, 0.0F, positions + used);
    };
  });
}

Kernel make_cross_entropy(const OpView& v) {
  if (!outputs_are(v, {0, 1}, DType::f32)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const LossShape shape = loss_shape(v);
    return [shape](const KernelArgs& args) {
      check_ids(ids(args.in[1]), shape.rows, shape.valid, "target", true);
      cross_entropy_forward(shape, static_cast<const S*>(args.in[0]), ids(args.in[1]),
                            static_cast<float*>(args.out[0]), static_cast<float*>(args.out[1]));
    };
  });
}

/// Inputs: logits, targets, lse.
/// With loss scaling it is the reference's.
Kernel make_cross_entropy_backward(const OpView& v) {
  constexpr std::size_t kLossScale = 3;
  const DType dtype = v.in(0).dtype;
  if (v.has_in(kLossScale)) return {};
  if (!inputs_are(v, {2}, DType::f32) || !outputs_are(v, {0}, dtype)) return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const LossShape shape = loss_shape(v);
    const auto scale = static_cast<float>(v.op.attrs.number("grad_scale"));
    return [shape, scale](const KernelArgs& args) {
      check_ids(ids(args.in[1]), shape.rows, shape.valid, "target", true);
      cross_entropy_backward(shape, static_cast<const S*>(args.in[0]), ids(args.in[1]),
                             static_cast<const float*>(args.in[2]), scale, static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_cross_entropy_with_gradient(const OpView& v) {
  return compose_loss_with_gradient(v, make_cross_entropy, make_cross_entropy_backward);
}

}  // namespace rooflm::backends::cpu::fast
