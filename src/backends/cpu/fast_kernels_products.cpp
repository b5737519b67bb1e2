// Fast kernels, bound to ops: matrix products, bias gradients, rotary embedding and attention.
#include <cstddef>
#include <memory>

#include "backends/cpu/fast/activation.h"
#include "backends/cpu/fast/attention.h"
#include "backends/cpu/fast/gemm.h"
#include "backends/cpu/fast/rope.h"
#include "backends/cpu/fast_kernels.h"
#include "backends/product_with_gelu.h"
#include "core/error.h"

namespace rooflm::backends::cpu::fast {
namespace {

using core::DType;

/// Dtypes and combinations that Gemm takes.
bool is_supported(const OpView& v, const GemmProblem& p) {
  const bool factors = p.a_type == p.b_type && (p.a_type == DType::f32 || p.a_type == DType::bf16);
  const bool result = p.c_type == DType::f32 || p.c_type == p.a_type;
  const bool sum = !p.accumulate || (p.c_type == DType::f32 && !p.bias);
  return factors && result && sum && inputs_are(v, {2}, DType::f32);
}

GemmProblem problem_of(const OpView& v) {
  return {.batch = v.op.attrs.flag("looped") ? 1 : v.integer("batch"),
          .m = v.integer("m"),
          .n = v.integer("n"),
          .k = v.integer("k"),
          .trans_a = v.op.attrs.flag("trans_a"),
          .trans_b = v.op.attrs.flag("trans_b"),
          .a_type = v.in(0).dtype,
          .b_type = v.in(1).dtype,
          .c_type = v.out(0).dtype,
          .bias = v.has_in(2),
          .accumulate = v.accumulates()};
}

AttentionShape attention_shape(const OpView& v, const core::Shape& qkv) {
  return {.batch = qkv[0],
          .seq = qkv[1],
          .heads = v.integer("heads"),
          .kv_heads = v.integer("kv_heads"),
          .head_dim = v.integer("head_dim")};
}

}  // namespace

/// Looped: one product after the other, each over all threads.
Kernel make_matmul(const OpView& v) {
  const GemmProblem p = problem_of(v);
  if (!is_supported(v, p)) return {};
  std::shared_ptr<const Gemm> gemm;
  try {
    gemm = std::make_shared<const Gemm>(p);
  } catch (const core::Unavailable&) {
    return {};  // no bf16 products on this processor
  }
  v.resources->scratch().reserve(gemm->scratch_bytes());
  const std::int64_t count = v.integer("batch") / p.batch;
  const auto stride = [&](std::int64_t elements, DType dtype) {
    return elements * static_cast<std::int64_t>(core::size_of(dtype));
  };
  const std::int64_t a_bytes = stride(p.m * p.k, p.a_type);
  const std::int64_t b_bytes = stride(p.k * p.n, p.b_type);
  const std::int64_t c_bytes = stride(p.m * p.n, p.c_type);
  const bool has_bias = p.bias;
  return [=, resources = v.resources](const KernelArgs& args) {
    const auto* a = static_cast<const std::byte*>(args.in[0]);
    const auto* b = static_cast<const std::byte*>(args.in[1]);
    auto* c = static_cast<std::byte*>(args.out[0]);
    const void* bias = has_bias ? args.in[2] : nullptr;
    void* scratch = resources->scratch().data();
    for (std::int64_t i = 0; i < count; ++i) {
      (*gemm)(a + i * a_bytes, b + i * b_bytes, c + i * c_bytes, bias, scratch);
    }
  };
}

Kernel make_matmul_gelu(const OpView& v) { return compose_matmul_gelu(v, make_matmul, make_gelu); }

Kernel make_matmul_gelu_backward(const OpView& v) {
  return compose_matmul_gelu_backward(v, make_matmul, make_gelu_backward);
}

Kernel make_bias_backward(const OpView& v) {
  if (!outputs_are(v, {0}, DType::f32)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const std::int64_t cols = v.in(0).shape[-1];
    const std::int64_t rows = v.in(0).shape.numel() / cols;
    return [=, accumulate = v.accumulates()](const KernelArgs& args) {
      bias_backward(rows, cols, static_cast<const S*>(args.in[0]), static_cast<float*>(args.out[0]),
                    accumulate);
    };
  });
}

Kernel make_rope(const OpView& v) {
  if (!outputs_are(v, {0}, v.in(0).dtype)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const AttentionShape shape = attention_shape(v, v.in(0).shape);
    const bool inverse = v.op.attrs.flag("inverse");
    const auto tables =
        v.resources->rope_tables<float>(shape.seq, shape.head_dim, v.op.attrs.number("theta"));
    return [=](const KernelArgs& args) {
      rope(shape, static_cast<const S*>(args.in[0]), tables->cosines.data(), tables->sines.data(), inverse,
           static_cast<S*>(args.out[0]));
    };
  });
}

Kernel make_flash_attention(const OpView& v) {
  if (!outputs_are(v, {0}, v.in(0).dtype) || !outputs_are(v, {1}, DType::f32)) return {};
  return with_storage(v.in(0).dtype, [&]<class S>(S) -> Kernel {
    const AttentionShape shape = attention_shape(v, v.in(0).shape);
    v.resources->scratch().reserve(attention_forward_scratch_bytes(shape));
    return [shape, resources = v.resources](const KernelArgs& args) {
      attention_forward(shape, static_cast<const S*>(args.in[0]), static_cast<S*>(args.out[0]),
                        static_cast<float*>(args.out[1]), resources->scratch().data());
    };
  });
}

/// Inputs: dy, qkv, y, lse.
Kernel make_flash_attention_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!inputs_are(v, {1, 2}, dtype) || !inputs_are(v, {3}, DType::f32) || !outputs_are(v, {0}, dtype)) {
    return {};
  }
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const AttentionShape shape = attention_shape(v, v.in(1).shape);
    v.resources->scratch().reserve(attention_backward_scratch_bytes(shape));
    return [shape, resources = v.resources](const KernelArgs& args) {
      attention_backward(shape, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
                         static_cast<const S*>(args.in[2]), static_cast<const float*>(args.in[3]),
                         static_cast<S*>(args.out[0]), resources->scratch().data());
    };
  });
}

}  // namespace rooflm::backends::cpu::fast
