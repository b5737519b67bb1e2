// latent_attention (program/ops/latent_attention.cpp): packs its inputs as flash attention has them, with
// heads of the size of queries and keys, and runs that. Values and results are padded with zeros to it.
#include <algorithm>
#include <cmath>
#include <memory>

#include "backends/cpu/fast/attention.h"
#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/resources.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::fast {
namespace {

struct Latent {
  AttentionShape shape;
  std::int64_t rotary, v_dim;
  /// `q`: index of the input q; kv and rotary follow.
  Latent(const OpView& v, std::size_t q) : rotary(v.in(q + 2).shape[2]), v_dim(v.integer("v_dim")) {
    const std::int64_t qk_dim = v.integer("qk_dim");
    shape = {
        .batch = v.in(q).shape[0],
        .seq = v.in(q).shape[1],
        .heads = v.integer("heads"),
        .kv_heads = v.integer("heads"),
        .head_dim = std::max(qk_dim, v_dim),
        .scale = v.op.attrs.has("scale") ? v.number("scale") : 1.0F / std::sqrt(static_cast<float>(qk_dim))};
    plain = qk_dim - rotary;
  }
  std::int64_t plain = 0;  ///< elements of a key that are its own
  [[nodiscard]] std::int64_t rows() const { return shape.batch * shape.seq; }
  [[nodiscard]] std::int64_t packed() const { return rows() * 3 * shape.heads * shape.head_dim; }
  [[nodiscard]] std::int64_t results() const { return rows() * shape.heads * shape.head_dim; }
};

/// Elements of a packed row.
template <Storage S>
struct Row {
  S *q, *k, *v;
  Row(const Latent& l, S* qkv, std::int64_t row, std::int64_t head) {
    const std::int64_t width = l.shape.heads * l.shape.head_dim;
    q = qkv + row * 3 * width + head * l.shape.head_dim;
    k = q + width;
    v = k + width;
  }
};

/// to [D] = from, and zeros.
template <Storage S>
void pad(const S* from, std::int64_t count, std::int64_t dim, S* to) {
  std::fill(std::copy_n(from, count, to), to + dim, S(0.0F));
}

template <Storage S>
void pack(const Latent& l, const S* q, const S* kv, const S* rotary, S* qkv) {
  const std::int64_t heads = l.shape.heads;
  const std::int64_t dim = l.shape.head_dim;
  parallel_for(l.rows(), 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const Row<S> to(l, qkv, row, h);
        const S* key = kv + (row * heads + h) * (l.plain + l.v_dim);
        pad(q + (row * heads + h) * (l.plain + l.rotary), l.plain + l.rotary, dim, to.q);
        std::copy_n(key, l.plain, to.k);
        pad(rotary + row * l.rotary, l.rotary, dim - l.plain, to.k + l.plain);
        pad(key + l.plain, l.v_dim, dim, to.v);
      }
    }
  });
}

/// Results [.., H, Dv] to and from [.., H, D].
template <Storage S>
void pad_results(const Latent& l, const S* from, S* to) {
  const std::int64_t dim = l.shape.head_dim;
  parallel_for(l.rows() * l.shape.heads, 64, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) pad(from + i * l.v_dim, l.v_dim, dim, to + i * dim);
  });
}
template <Storage S>
void cut_results(const Latent& l, const S* from, S* to) {
  const std::int64_t dim = l.shape.head_dim;
  parallel_for(l.rows() * l.shape.heads, 64, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) std::copy_n(from + i * dim, l.v_dim, to + i * l.v_dim);
  });
}

/// The gradient of pack; that of `rotary` is a sum over heads.
template <Storage S>
void unpack(const Latent& l, S* dqkv, S* dq, S* dkv, S* drotary) {
  const std::int64_t heads = l.shape.heads;
  parallel_for(l.rows(), 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const Row<S> from(l, dqkv, row, h);
        S* key = dkv + (row * heads + h) * (l.plain + l.v_dim);
        std::copy_n(from.q, l.plain + l.rotary, dq + (row * heads + h) * (l.plain + l.rotary));
        std::copy_n(from.k, l.plain, key);
        std::copy_n(from.v, l.v_dim, key + l.plain);
      }
      for (std::int64_t i = 0; i < l.rotary; ++i) {
        float sum = 0;
        for (std::int64_t h = 0; h < heads; ++h)
          sum += static_cast<float>(Row<S>(l, dqkv, row, h).k[l.plain + i]);
        drotary[row * l.rotary + i] = S(sum);
      }
    }
  });
}

/// Of flash attention first, then of the packed tensors, each at a boundary of 64 bytes.
std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

bool is_computed(const OpView& v, std::size_t q) {
  return v.op.inputs.size() == q + 3 && !v.op.attrs.has("window") && !v.op.attrs.has("parts");
}

/// Index of the input q in the backward op.
constexpr std::size_t kFirst = 3;

}  // namespace

/// Inputs: q, kv, rotary. Outputs: y, lse.
Kernel make_latent_attention(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_computed(v, 0) || !v.inputs_are({1, 2}, dtype) || !v.outputs_are({0}, dtype) ||
      !v.outputs_are({1}, DType::f32))
    return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const Latent l(v, 0);
    const std::size_t own = padded(attention_forward_scratch_bytes(l.shape));
    const std::size_t packed = padded(static_cast<std::size_t>(l.packed()) * sizeof(S));
    const std::size_t all = own + packed + static_cast<std::size_t>(l.results()) * sizeof(S);
    v.context->scratch().reserve(all);
    const auto run = [l, own, packed, resources = v.context](const KernelArgs& args) {
      auto* scratch = static_cast<std::byte*>(static_cast<void*>(resources->scratch().data()));
      auto* qkv = reinterpret_cast<S*>(scratch + own);
      auto* o = reinterpret_cast<S*>(scratch + own + packed);
      pack(l, static_cast<const S*>(args.in[0]), static_cast<const S*>(args.in[1]),
           static_cast<const S*>(args.in[2]), qkv);
      attention_forward(l.shape, qkv, o, static_cast<float*>(args.out[1]), scratch);
      cut_results(l, o, static_cast<S*>(args.out[0]));
    };
    return {run, {.workspace_bytes = static_cast<std::int64_t>(all)}};
  });
}

/// Inputs: dy, y, lse, q, kv, rotary. Outputs: dq, dkv, drotary.
Kernel make_latent_attention_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_computed(v, kFirst) || !v.inputs_are({1, 3, 4, 5}, dtype) || !v.inputs_are({2}, DType::f32) ||
      !v.outputs_are({0, 1, 2}, dtype))
    return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const Latent l(v, kFirst);
    const std::size_t own = padded(attention_backward_scratch_bytes(l.shape));
    const std::size_t packed = padded(static_cast<std::size_t>(l.packed()) * sizeof(S));
    const std::size_t result = padded(static_cast<std::size_t>(l.results()) * sizeof(S));
    const std::size_t all = own + 2 * packed + 2 * result;
    v.context->scratch().reserve(all);
    const auto run = [l, own, packed, result, resources = v.context](const KernelArgs& args) {
      auto* scratch = static_cast<std::byte*>(static_cast<void*>(resources->scratch().data()));
      auto* qkv = reinterpret_cast<S*>(scratch + own);
      auto* dqkv = reinterpret_cast<S*>(scratch + own + packed);
      auto* o = reinterpret_cast<S*>(scratch + own + 2 * packed);
      auto* d_o = reinterpret_cast<S*>(scratch + own + 2 * packed + result);
      pad_results(l, static_cast<const S*>(args.in[0]), d_o);
      pad_results(l, static_cast<const S*>(args.in[1]), o);
      pack(l, static_cast<const S*>(args.in[kFirst]), static_cast<const S*>(args.in[kFirst + 1]),
           static_cast<const S*>(args.in[kFirst + 2]), qkv);
      attention_backward(l.shape, d_o, qkv, o, static_cast<const float*>(args.in[2]), dqkv, scratch);
      unpack(l, dqkv, static_cast<S*>(args.out[0]), static_cast<S*>(args.out[1]),
             static_cast<S*>(args.out[2]));
    };
    return {run, {.workspace_bytes = static_cast<std::int64_t>(all)}};
  });
}

MakerRows latent_attention_rows() {
  namespace ops = program::ops;
  return {{&ops::kLatentAttention, make_latent_attention, "latent_attention"},
          {&ops::kLatentAttentionBackward, make_latent_attention_backward, "latent_attention_backward"}};
}

}  // namespace rooflm::backends::cpu::fast
