// Norms of the query and key heads of a packed projection, forward and backward.
#include <algorithm>
#include <cmath>

#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/vec.h"
#include "backends/cpu/resources.h"
#include "program/ops.h"

namespace rooflm::backends::cpu {
namespace {

constexpr std::int64_t kRowGrain = 4;

/// Elements that are normed together: of a row, and where their weights and statistics are.
struct Span {
  std::int64_t begin, size;
  std::int64_t weight;  // the first, of the weights of queries with those of keys behind them
};

struct HeadNorm {
  std::int64_t rows, width, normed;  // of qkv; elements of queries and keys
  std::int64_t groups, heads;        // groups of a row; of queries: heads, or 1 for all
  std::int64_t q_size, k_size;       // of a group
  std::int64_t q_weights, k_weights;
  float eps;
  bool is_layer, accumulate;

  [[nodiscard]] std::int64_t weights() const { return q_weights + k_weights; }
  [[nodiscard]] Span span(std::int64_t g) const {
    if (g < heads) return {g * q_size, q_size, q_weights > q_size ? g * q_size : 0};
    const std::int64_t k = g - heads;
    return {heads * q_size + k * k_size, k_size, q_weights + (k_weights > k_size ? k * k_size : 0)};
  }
  /// Weights of queries, then those of keys; null without weights.
  [[nodiscard]] const float* weight(const Span& of, const float* q, const float* k) const {
    if (weights() == 0) return nullptr;
    return of.weight < q_weights ? q + of.weight : k + (of.weight - q_weights);
  }
};

template <class Term>
ROOFLM_INLINE float sum_of(std::int64_t size, const Term& term) {
  Floats sum = {};
  for_lanes(0, size, [&](auto i, auto count) { sum += pad_at(term(i, count), count, 0); });
  return sum_lanes(sum);
}

template <class S>
void copy_rest(const HeadNorm& n, const S* from, S* to) {
  if (from != to) std::copy(from + n.normed, from + n.width, to + n.normed);
}

template <Storage S>
[[gnu::noipa]] void head_norm_forward(const HeadNorm& n, const S* qkv, const float* wq, const float* wk, S* y,
                                      float* statistics) {
  parallel_for(n.rows, kRowGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      for (std::int64_t g = 0; g < n.groups; ++g) {
        const Span of = n.span(g);
        const auto size = static_cast<float>(of.size);
        const S* x = qkv + r * n.width + of.begin;
        S* to = y + r * n.width + of.begin;
        const float* w = n.weight(of, wq, wk);
        float mean = 0;
        if (n.is_layer)
          mean = sum_of(of.size, [=](auto i, auto count) { return load_at(x + i, count); }) / size;
        const float squares = sum_of(of.size, [=](auto i, auto count) {
          const Floats centred = load_at(x + i, count) - mean;
          return centred * centred;
        });
        const float rstd = 1.0F / std::sqrt(squares / size + n.eps);
        for_lanes(0, of.size, [=](auto i, auto count) {
          Floats out = (load_at(x + i, count) - mean) * rstd;
          if (w != nullptr) out *= load_at(w + i, count);
          store_at(to + i, out, count);
        });
        statistics[r * n.groups + g] = mean;
        statistics[(n.rows + r) * n.groups + g] = rstd;
      }
      copy_rest(n, qkv + r * n.width, y + r * n.width);
    }
  });
}

/// Weight gradients are first summed over blocks of rows; the blocks depend only on the number of rows.
std::int64_t block_rows(std::int64_t rows) { return std::max<std::int64_t>(16, (rows + 63) / 64); }
std::int64_t blocks_of(std::int64_t rows) { return (rows + block_rows(rows) - 1) / block_rows(rows); }

template <Storage S>
struct Gradients {
  const S *dy, *qkv;
  const float *statistics, *wq, *wk;
  S* dx;
  float *dwq, *dwk;
};

/// One group of row r; dweight (+)= dy * xhat, if there are weights.
template <Storage S>
void group_gradient(const HeadNorm& n, const Gradients<S>& a, std::int64_t r, std::int64_t g,
                    float* dweight) {
  const Span of = n.span(g);
  const auto size = static_cast<float>(of.size);
  const S* dy = a.dy + r * n.width + of.begin;
  const S* x = a.qkv + r * n.width + of.begin;
  S* dx = a.dx + r * n.width + of.begin;
  const float* w = n.weight(of, a.wq, a.wk);
  const float mean = a.statistics[r * n.groups + g];
  const float rstd = a.statistics[(n.rows + r) * n.groups + g];
  const auto weighted = [=](auto i, auto count) ROOFLM_INLINE_LAMBDA {
    const Floats d = load_at(dy + i, count);
    return w == nullptr ? d : d * load_at(w + i, count);
  };
  const auto xhat = [=](auto i, auto count)
                        ROOFLM_INLINE_LAMBDA { return (load_at(x + i, count) - mean) * rstd; };
  float mean_g = 0;
  if (n.is_layer) mean_g = sum_of(of.size, weighted) / size;
  const float mean_g_xhat =
      sum_of(of.size, [=](auto i, auto count) { return weighted(i, count) * xhat(i, count); }) / size;
  float* to = w == nullptr ? nullptr : dweight + of.weight;
  for_lanes(0, of.size, [=](auto i, auto count) {
    const Floats h = xhat(i, count);
    if (to != nullptr) store_at(to + i, load_at(to + i, count) + load_at(dy + i, count) * h, count);
    store_at(dx + i, (weighted(i, count) - mean_g - h * mean_g_xhat) * rstd, count);
  });
}

template <Storage S>
[[gnu::noipa]] void head_norm_backward(const HeadNorm& n, const Gradients<S>& a, float* partial) {
  const std::int64_t block = block_rows(n.rows);
  const std::int64_t blocks = blocks_of(n.rows);
  const std::int64_t stride = n.weights();
  parallel_for(blocks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      float* dweight = partial + b * stride;
      std::fill(dweight, dweight + stride, 0.0F);
      for (std::int64_t r = b * block; r < std::min(n.rows, (b + 1) * block); ++r) {
        for (std::int64_t g = 0; g < n.groups; ++g) group_gradient(n, a, r, g, dweight);
        copy_rest(n, a.dy + r * n.width, a.dx + r * n.width);
      }
    }
  });
  const auto sum_blocks = [&](std::int64_t from, std::int64_t count, float* to) {
    for (std::int64_t i = 0; i < count; ++i) {
      float sum = n.accumulate ? to[i] : 0.0F;
      for (std::int64_t b = 0; b < blocks; ++b) sum += partial[b * stride + from + i];
      to[i] = sum;
    }
  };
  sum_blocks(0, n.q_weights, a.dwq);
  sum_blocks(n.q_weights, n.k_weights, a.dwk);
}

}  // namespace
}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {
namespace {

HeadNorm shape_of(const OpView& v, std::size_t qkv, std::size_t weights) {
  const std::int64_t size = v.integer("head_dim");
  const std::int64_t queries = v.integer("heads") * size;
  const std::int64_t keys = v.integer("kv_heads") * size;
  const bool is_whole = v.op.attrs.flag("whole");
  const bool has_weights = v.has_in(weights);
  return {.rows = rows_of(v.in(qkv)),
          .width = v.in(qkv).shape[-1],
          .normed = queries + keys,
          .groups = is_whole ? 2 : (queries + keys) / size,
          .heads = is_whole ? 1 : queries / size,
          .q_size = is_whole ? queries : size,
          .k_size = is_whole ? keys : size,
          .q_weights = has_weights ? v.in(weights).shape[0] : 0,
          .k_weights = has_weights ? v.in(weights + 1).shape[0] : 0,
          .eps = v.number("eps"),
          .is_layer = v.op.attrs.flag("layer"),
          .accumulate = v.accumulates()};
}

const float* floats(const KernelArgs& args, std::size_t i) {
  return i < args.in.size() ? static_cast<const float*>(args.in[i]) : nullptr;
}

}  // namespace

Kernel make_head_norm(const OpView& v) {
  if (v.op.attrs.flag("head_biases")) return {};
  const DType dtype = v.in(0).dtype;
  if (!v.outputs_are({0}, dtype) || !v.outputs_are({1}, DType::f32) || !v.inputs_are({1, 2}, DType::f32))
    return {};
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    return [n = shape_of(v, 0, 1)](const KernelArgs& args) {
      head_norm_forward(n, static_cast<const S*>(args.in[0]), floats(args, 1), floats(args, 2),
                        static_cast<S*>(args.out[0]), static_cast<float*>(args.out[1]));
    };
  });
}

/// Inputs: dy, qkv, statistics [, wq, wk]. Outputs: dqkv [, dwq, dwk].
Kernel make_head_norm_backward(const OpView& v) {
  if (v.op.attrs.flag("head_biases")) return {};
  const DType dtype = v.in(0).dtype;
  if (!v.inputs_are({1}, dtype) || !v.outputs_are({0}, dtype) || !v.inputs_are({2, 3, 4}, DType::f32))
    return {};
  const HeadNorm n = shape_of(v, 1, 3);
  if (n.weights() > 0 && !v.outputs_are({1, 2}, DType::f32)) return {};
  const auto bytes = static_cast<std::size_t>(blocks_of(n.rows) * n.weights()) * sizeof(float);
  v.context->scratch().reserve(bytes);
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    const auto run = [n, resources = v.context](const KernelArgs& args) {
      const bool has_weights = n.weights() > 0;
      const Gradients<S> a{.dy = static_cast<const S*>(args.in[0]),
                           .qkv = static_cast<const S*>(args.in[1]),
                           .statistics = floats(args, 2),
                           .wq = floats(args, 3),
                           .wk = floats(args, 4),
                           .dx = static_cast<S*>(args.out[0]),
                           .dwq = has_weights ? static_cast<float*>(args.out[1]) : nullptr,
                           .dwk = has_weights ? static_cast<float*>(args.out[2]) : nullptr};
      head_norm_backward(n, a, reinterpret_cast<float*>(resources->scratch().data()));
    };
    return {run, {.workspace_bytes = static_cast<std::int64_t>(bytes)}};
  });
}

MakerRows head_norm_rows() {
  namespace ops = program::ops;
  return {{&ops::kHeadNorm, make_head_norm, "head_norm_forward"},
          {&ops::kHeadNormBackward, make_head_norm_backward, "head_norm_backward"}};
}

}  // namespace rooflm::backends::cpu::fast
