// LayerNorm and RMSNorm over rows, forward and backward, with the residual addition fused in.
#include "backends/cpu/fast/norm.h"

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

// Sum over one row of `term(i, count)`, which must be zero in lanes past the end. Four running sums hide the
// latency of additions; lane group i always goes to sum i % 4, so the order depends only on cols.
template <class Term>
ROOFLM_INLINE float row_sum(std::int64_t cols, const Term& term) {
  Floats sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= cols; i += 4 * kLanes) {
    for (int s = 0; s < 4; ++s) sums[s] += term(i + s * kLanes, WholeGroup{});
  }
  int turn = 0;
  for_lanes(i, cols, [&](auto j, auto count) { sums[turn++] += term(j, count); });
  return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Longest row that is kept in fp32 while it is processed.
constexpr std::int64_t kKeptCols = 8192;

// Whether rows of `to`, which is neither a nor b, are streamed. For short rows, partially written lines cost
// what the others save.
template <class S>
bool streams_rows(const void* to, const void* a, const void* b, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kLongRow = 48 * kLineBytes;
  const std::int64_t bytes = cols * static_cast<std::int64_t>(sizeof(S));
  const bool pays = bytes % kLineBytes == 0 || bytes >= kLongRow;
  return pays && to != a && to != b && is_streamed(rows * bytes);
}

template <Storage S>
void add_row(std::int64_t cols, const S* x, const S* residual, S* sum) {
  for_lanes(0, cols, [=](auto i, auto count) {
    store_at(sum + i, load_at(x + i, count) + load_at(residual + i, count), count);
  });
}

// The same into fp32, from the values that `sum` then holds.
template <Storage S>
void keep_row(std::int64_t cols, const S* x, const S* residual, S* sum, bool streams, float* kept) {
  if (residual == nullptr) {
    for_lanes(0, cols, [=](auto i, auto count) { store_at(kept + i, load_at(x + i, count), count); });
    return;
  }
  for_lanes_to(sum, streams, 0, cols, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
    const Floats both = load_at(x + i, group) + load_at(residual + i, group);
    store_at(sum + i, both, group);
    store_at(kept + i, rounded_to<S>(both), plain(group));
  });
}

template <Norm kNorm, Storage S, Storage R>
void normalise_row(const NormForward<S>& a, std::int64_t row, const R* x, bool streams) {
  const auto size = static_cast<float>(a.cols);
  S* y = a.y + row * a.cols;
  float mean = 0;
  if constexpr (kNorm == Norm::layer) {
    mean = row_sum(a.cols, [=](auto i, auto count) { return load_at(x + i, count); }) / size;
  }
  const float squares = row_sum(a.cols, [=](auto i, auto count) {
    const Floats centered = pad_at(load_at(x + i, count) - mean, count, 0);
    return centered * centered;
  });
  const float rstd = 1.0F / std::sqrt(squares / size + a.eps);
  for_lanes_to(y, streams, 0, a.cols, [=, &a](auto i, auto group) ROOFLM_INLINE_LAMBDA {
    Floats out = (load_at(x + i, group) - mean) * rstd;
    if (a.weight != nullptr) out *= load_at(a.weight + i, group);
    if (kNorm == Norm::layer && a.bias != nullptr) out += load_at(a.bias + i, group);
    store_at(y + i, out, group);
  });
  if (kNorm == Norm::layer && a.mean != nullptr) a.mean[row] = mean;
  if (a.rstd != nullptr) a.rstd[row] = rstd;
}

}  // namespace

template <Norm kNorm, Storage S>
void norm_forward(const NormForward<S>& a) {
  const bool streams = streams_rows<S>(a.y, a.x, a.residual, a.rows, a.cols);
  const bool streams_sum = streams_rows<S>(a.sum, a.x, a.residual, a.rows, a.cols);
  parallel_for(a.rows, kRowGrain, [&](std::int64_t first, std::int64_t last) {
    alignas(64) float kept[kKeptCols];
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t at = row * a.cols;
      const S* residual = a.residual == nullptr ? nullptr : a.residual + at;
      S* sum = residual == nullptr ? nullptr : a.sum + at;
      if (a.cols <= kKeptCols && (sum != nullptr || sizeof(S) < sizeof(float))) {
        keep_row(a.cols, a.x + at, residual, sum, streams_sum, kept);
        normalise_row<kNorm>(a, row, kept, streams);
        continue;
      }
      if (residual != nullptr) add_row(a.cols, a.x + at, residual, sum);
      normalise_row<kNorm, S, S>(a, row, residual == nullptr ? a.x + at : sum, streams);
    }
    if (streams || streams_sum) end_stream();
  });
}

namespace {

// Weight gradients are first summed over blocks of rows; the blocks depend only on the number of rows.
std::int64_t block_rows(std::int64_t rows) { return std::max<std::int64_t>(16, (rows + 63) / 64); }

template <Norm kNorm, Storage S>
void backward_row(const NormBackward<S>& a, std::int64_t row, bool streams, float* dweight, float* dbias) {
  const S* dy = a.dy + row * a.cols;
  const S* x = a.x + row * a.cols;
  const float* weight = a.weight;
  const auto weighted = [=](Floats d, auto i, auto count) ROOFLM_INLINE_LAMBDA {
    return weight == nullptr ? d : d * load_at(weight + i, count);
  };
  const float mean = kNorm == Norm::layer ? a.mean[row] : 0.0F;
  const float rstd = a.rstd[row];
  const auto size = static_cast<float>(a.cols);
  float gradient_mean = 0;
  if constexpr (kNorm == Norm::layer) {
    gradient_mean =
        row_sum(a.cols, [=](auto i, auto count) { return weighted(load_at(dy + i, count), i, count); }) /
        size;
  }
  const float projection = row_sum(a.cols,
                                   [=](auto i, auto count) {
                                     const Floats n = (load_at(x + i, count) - mean) * rstd;
                                     return weighted(load_at(dy + i, count), i, count) * n;
                                   }) /
                           size;
  const S* d_residual = a.d_residual == nullptr ? nullptr : a.d_residual + row * a.cols;
  S* dx = a.dx + row * a.cols;
  for_lanes_to(dx, streams, 0, a.cols, [=](auto i, auto group) ROOFLM_INLINE_LAMBDA {
    const Floats d = load_at(dy + i, group);
    const Floats n = (load_at(x + i, group) - mean) * rstd;
    const Floats g =
        weight == nullptr ? d - gradient_mean : fma(d, load_at(weight + i, group), splat(-gradient_mean));
    Floats out = (g - n * projection) * rstd;
    if (d_residual != nullptr) out += load_at(d_residual + i, group);
    store_at(dweight + i, load_at(dweight + i, group) + d * n, plain(group));
    if (kNorm == Norm::layer) store_at(dbias + i, load_at(dbias + i, group) + d, plain(group));
    store_at(dx + i, out, group);
  });
}

// target (+)= sum over blocks of partial[block], in order.
void sum_blocks(std::int64_t blocks, std::int64_t cols, std::int64_t stride, const float* partial,
                bool accumulate, float* target) {
  parallel_for(cols, 8 * kLanes, [=](std::int64_t begin, std::int64_t end) {
    for_lanes(begin, end, [=](auto i, auto count) {
      Floats sum = load_at(partial + i, count);
      for (std::int64_t b = 1; b < blocks; ++b) sum += load_at(partial + b * stride + i, count);
      store_at(target + i, accumulate ? load_at(target + i, count) + sum : sum, count);
    });
  });
}

}  // namespace

template <Norm kNorm, Storage S>
void norm_backward(const NormBackward<S>& a, void* scratch) {
  auto* partial = static_cast<float*>(scratch);
  const std::int64_t block = block_rows(a.rows);
  const std::int64_t blocks = (a.rows + block - 1) / block;
  const std::int64_t stride = 2 * a.cols;
  const bool streams = a.dx != a.x && streams_rows<S>(a.dx, a.dy, a.d_residual, a.rows, a.cols);
  parallel_for(blocks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      float* dweight = partial + b * stride;
      std::fill(dweight, dweight + stride, 0.0F);
      const std::int64_t end = std::min(a.rows, (b + 1) * block);
      for (std::int64_t row = b * block; row < end; ++row) {
        backward_row<kNorm>(a, row, streams, dweight, dweight + a.cols);
      }
    }
    if (streams) end_stream();
  });
  if (a.dweight != nullptr) sum_blocks(blocks, a.cols, stride, partial, a.accumulate, a.dweight);
  if (kNorm == Norm::layer && a.dbias != nullptr) {
    sum_blocks(blocks, a.cols, stride, partial + a.cols, a.accumulate, a.dbias);
  }
}

std::size_t norm_backward_scratch_bytes(std::int64_t rows, std::int64_t cols) {
  const std::int64_t block = block_rows(rows);
  return static_cast<std::size_t>((rows + block - 1) / block * 2 * cols) * sizeof(float);
}

template void norm_forward<Norm::layer>(const NormForward<float>&);
template void norm_forward<Norm::layer>(const NormForward<core::Bf16>&);
template void norm_forward<Norm::rms>(const NormForward<float>&);
template void norm_forward<Norm::rms>(const NormForward<core::Bf16>&);
template void norm_backward<Norm::layer>(const NormBackward<float>&, void*);
template void norm_backward<Norm::layer>(const NormBackward<core::Bf16>&, void*);
template void norm_backward<Norm::rms>(const NormBackward<float>&, void*);
template void norm_backward<Norm::rms>(const NormBackward<core::Bf16>&, void*);

}  // namespace rooflm::backends::cpu

namespace rooflm::backends::cpu::fast {
namespace {

/// y [, mean], rstd = norm(x; weight [, bias]), or r, y [, mean], rstd = norm(x + residual; ..).
template <Norm kNorm, bool kAdds>
Kernel make_forward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const std::size_t weight = kAdds ? 2 : 1;
  const std::size_t y = kAdds ? 1 : 0;
  const std::size_t rstd = kNorm == Norm::layer ? y + 2 : y + 1;
  if (!v.inputs_are({weight - 1}, dtype) || !v.inputs_are({weight, weight + 1}, DType::f32) ||
      !v.outputs_are({0, y}, dtype) || !v.outputs_are({y + 1, rstd}, DType::f32)) {
    return {};
  }
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    NormForward<S> fixed;
    fixed.cols = v.in(0).shape[-1];
    fixed.rows = v.in(0).shape.numel() / fixed.cols;
    fixed.eps = static_cast<float>(v.op.attrs.number("eps"));
    return [=](const KernelArgs& args) {
      NormForward<S> a = fixed;
      a.x = static_cast<const S*>(args.in[0]);
      if (kAdds) {
        a.residual = static_cast<const S*>(args.in[1]);
        a.sum = static_cast<S*>(args.out[0]);
      }
      a.weight = static_cast<const float*>(args.in[weight]);
      a.y = static_cast<S*>(args.out[y]);
      a.rstd = static_cast<float*>(args.out[rstd]);
      if constexpr (kNorm == Norm::layer) {
        a.bias = static_cast<const float*>(args.in[weight + 1]);
        a.mean = static_cast<float*>(args.out[y + 1]);
      }
      norm_forward<kNorm>(a);
    };
  });
}

/// Inputs: dy, x, weight [, mean], rstd [, residual gradient]; outputs: dx, dweight [, dbias].
template <Norm kNorm>
Kernel make_backward(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  const std::size_t rstd = kNorm == Norm::layer ? 4 : 3;
  const std::size_t last_weight = kNorm == Norm::layer ? 2 : 1;
  const bool has_more = v.op.attrs.flag("rebuilds") || v.op.attrs.flag("bias_gradient");
  if (has_more || !v.inputs_are({1, rstd + 1}, dtype) || !v.inputs_are({2, 3, rstd}, DType::f32) ||
      !v.outputs_are({0}, dtype) || !v.gradients_are({1, last_weight}, DType::f32)) {
    return {};
  }
  return with_storage(dtype, [&]<class S>(S) -> Kernel {
    NormBackward<S> fixed;
    fixed.cols = v.in(1).shape[-1];
    fixed.rows = v.in(1).shape.numel() / fixed.cols;
    fixed.accumulate = v.accumulates();
    const bool has_residual = v.has_in(rstd + 1);
    const std::size_t scratch_bytes = norm_backward_scratch_bytes(fixed.rows, fixed.cols);
    v.context->scratch().reserve(scratch_bytes);
    const auto run = [=, resources = v.context](const KernelArgs& args) {
      NormBackward<S> a = fixed;
      a.dy = static_cast<const S*>(args.in[0]);
      a.x = static_cast<const S*>(args.in[1]);
      a.weight = static_cast<const float*>(args.in[2]);
      a.rstd = static_cast<const float*>(args.in[rstd]);
      if (has_residual) a.d_residual = static_cast<const S*>(args.in[rstd + 1]);
      a.dx = static_cast<S*>(args.out[0]);
      a.dweight = static_cast<float*>(args.out[1]);
      if constexpr (kNorm == Norm::layer) {
        a.mean = static_cast<const float*>(args.in[3]);
        a.dbias = static_cast<float*>(args.out[2]);
      }
      norm_backward<kNorm>(a, resources->scratch().data());
    };
    return {run, {.workspace_bytes = static_cast<std::int64_t>(scratch_bytes)}};
  });
}

}  // namespace

MakerRows norm_rows() {
  namespace ops = program::ops;
  return {{&ops::kLayerNorm, make_forward<Norm::layer, false>, "layernorm_forward"},
          {&ops::kAddLayerNorm, make_forward<Norm::layer, true>, "layernorm_forward"},
          {&ops::kLayerNormBackward, make_backward<Norm::layer>, "layernorm_backward"},
          {&ops::kRmsNorm, make_forward<Norm::rms, false>, "rmsnorm_forward"},
          {&ops::kAddRmsNorm, make_forward<Norm::rms, true>, "rmsnorm_forward"},
          {&ops::kRmsNormBackward, make_backward<Norm::rms>, "rmsnorm_backward"}};
}

}  // namespace rooflm::backends::cpu::fast
