// matmul: c[i] (+)= op(a[i]) op(b[i]) for i < batch, by Eigen's GEMM.
//
// A single or looped matmul: Eigen spreads each over the threads. A batch: the threads split the batch.
// Operands that are not stored in the compute type are converted block by block. The sums of fp8 operands are
// multiplied by the inverse scales of both. grouped_matmul is one such product for each expert that has rows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/multiply.h"
#include "backends/cpu/reference/operand.h"
#include "program/fp8.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

using Index = std::int64_t;

template <class C, bool kTransposed>
auto map(const Matrix<const C>& x, Index rows, Index cols) {
  constexpr int kOrder = kTransposed ? Eigen::ColMajor : Eigen::RowMajor;
  using Dense = Eigen::Matrix<C, Eigen::Dynamic, Eigen::Dynamic, kOrder>;
  return Eigen::Map<const Dense, 0, Eigen::OuterStride<>>(x.data, rows, cols, Eigen::OuterStride<>(x.stride));
}

/// c += a b
template <class C, bool kTransA, bool kTransB>
void add_gemm(
    Index m, Index n, Index k, const Matrix<const C>& a, const Matrix<const C>& b,
    Eigen::Map<Eigen::Matrix<C, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0, Eigen::OuterStride<>>
        c) {
  c.noalias() += map<C, kTransA>(a, m, k) * map<C, kTransB>(b, k, n);
}

}  // namespace

template <class C>
void multiply(Index m, Index n, Index k, const Matrix<const C>& a, const Matrix<const C>& b,
              const Matrix<C>& c, bool accumulate) {
  using Dense = Eigen::Matrix<C, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Eigen::Map<Dense, 0, Eigen::OuterStride<>> to(c.data, m, n, Eigen::OuterStride<>(c.stride));
  if (!accumulate) to.setZero();
  if (a.transposed && b.transposed) return add_gemm<C, true, true>(m, n, k, a, b, to);
  if (a.transposed) return add_gemm<C, true, false>(m, n, k, a, b, to);
  if (b.transposed) return add_gemm<C, false, true>(m, n, k, a, b, to);
  add_gemm<C, false, false>(m, n, k, a, b, to);
}
template void multiply(Index, Index, Index, const Matrix<const float>&, const Matrix<const float>&,
                       const Matrix<float>&, bool);
template void multiply(Index, Index, Index, const Matrix<const double>&, const Matrix<const double>&,
                       const Matrix<double>&, bool);

namespace {

/// The op's extents, strides and dtypes.
struct Problem {
  Index batch, m, n, k;
  Index a_stride = 0, b_stride = 0, c_stride = 0;  ///< row strides as stored
  bool trans_a, trans_b, accumulate, looped;
  DType a_type, b_type, c_type;

  explicit Problem(const OpView& v)
      : batch(v.op.is(program::ops::kMatmul) ? v.integer("batch") : 1),
        m(v.integer("m")),
        n(v.integer("n")),
        k(v.integer("k")),
        trans_a(v.op.attrs.flag("trans_a")),
        trans_b(v.op.attrs.flag("trans_b")),
        accumulate(v.accumulates()),
        looped(v.op.attrs.flag("looped")),
        a_type(v.in(0).dtype),
        b_type(v.in(1).dtype),
        c_type(v.out(0).dtype) {
    const auto stride = [&](const char* name, Index dense) {
      return v.op.attrs.has(name) ? v.integer(name) : dense;
    };
    a_stride = stride("a_stride", trans_a ? m : k);
    b_stride = trans_b ? k : n;
    c_stride = stride("c_stride", n);
  }

  template <class C>
  [[nodiscard]] bool is_computed_as_stored() const {
    return a_type == kComputed<C> && b_type == kComputed<C> && c_type == kComputed<C>;
  }
};

const void* advance(const void* data, DType dtype, Index elements) {
  return static_cast<const std::byte*>(data) + elements * static_cast<Index>(core::size_of(dtype));
}
void* advance(void* data, DType dtype, Index elements) {
  return static_cast<std::byte*>(data) + elements * static_cast<Index>(core::size_of(dtype));
}

/// Multiplies all matrices in place, without conversion.
template <class C>
void multiply_stored(const Problem& p, const void* a, const void* b, void* c) {
  multiply<C>(p.m, p.n, p.k, {static_cast<const C*>(a), p.a_stride, p.trans_a},
              {static_cast<const C*>(b), p.b_stride, p.trans_b}, {static_cast<C*>(c), p.c_stride, false},
              p.accumulate);
}

/// Longest edge of a block that is converted to the compute type.
constexpr Index kEdge = 1024;

/// Scratch memory for converted blocks of a, b and c.
template <class C>
struct Blocks {
  Index m, n, k;
  explicit Blocks(const Problem& p)
      : m(std::min(p.m, kEdge)), n(std::min(p.n, kEdge)), k(std::min(p.k, kEdge)) {}
  [[nodiscard]] std::size_t bytes() const {
    return (static_cast<std::size_t>(m * k + k * n + m * n) * sizeof(C) + 63) / 64 * 64;
  }
};

/// to [rows, cols] = elements of `from` beginning at `first`, with row stride `stride`.
template <class C>
void convert_block(const void* from, DType dtype, Index first, Index stride, Index rows, Index cols, C* to) {
  for_rows(rows, [&](Index r) { core::load_elements(dtype, from, first + r * stride, to + r * cols, cols); });
}

/// The converted block of an operand at (row, col) of op(x); stored like the operand.
template <class C>
Matrix<const C> factor_block(const void* x, DType dtype, Index stride, bool transposed, Index row, Index col,
                             Index rows, Index cols, C* to) {
  if (transposed) {
    convert_block(x, dtype, col * stride + row, stride, cols, rows, to);
    return {to, rows, true};
  }
  convert_block(x, dtype, row * stride + col, stride, rows, cols, to);
  return {to, cols, false};
}

/// Writes `from` [rows, cols] times `scale`, rounded to the stored type, to the block of c at (row, col).
template <class C>
void store_block(const Problem& p, C* from, C scale, Index row, Index col, Index rows, Index cols, void* c) {
  for_rows(rows, [&](Index r) {
    const Index at = (row + r) * p.c_stride + col;
    C* values = from + r * cols;
    if (scale != C(1)) std::transform(values, values + cols, values, [scale](C x) { return x * scale; });
    if (p.accumulate) {
      std::array<C, kEdge> before;
      core::load_elements(p.c_type, c, at, before.data(), cols);
      for (Index i = 0; i < cols; ++i) values[i] += before[static_cast<std::size_t>(i)];
    }
    core::store_elements(values, p.c_type, c, at, cols);
  });
}

/// Multiplies block by block through `scratch` (Blocks::bytes()); sums over k stay in the compute type.
template <class C>
void multiply_converted(const Problem& p, const void* a, const void* b, void* c, C scale,
                        std::byte* scratch) {
  const Blocks<C> largest(p);
  C* a_block = reinterpret_cast<C*>(scratch);
  C* b_block = a_block + largest.m * largest.k;
  C* c_block = b_block + largest.k * largest.n;
  for (Index i = 0; i < p.m; i += kEdge) {
    const Index m = std::min(kEdge, p.m - i);
    for (Index j = 0; j < p.n; j += kEdge) {
      const Index n = std::min(kEdge, p.n - j);
      for (Index l = 0; l < p.k; l += kEdge) {
        const Index k = std::min(kEdge, p.k - l);
        const auto left = factor_block(a, p.a_type, p.a_stride, p.trans_a, i, l, m, k, a_block);
        const auto right = factor_block(b, p.b_type, p.b_stride, p.trans_b, l, j, k, n, b_block);
        multiply<C>(m, n, k, left, right, {c_block, n, false}, l > 0);
      }
      store_block(p, c_block, scale, i, j, m, n, c);
    }
  }
}

KernelInfo info_of(const Problem& p, std::size_t scratch_bytes) {
  return {.name = fmt::format("Eigen::Product<{}>{}", core::name_of(p.a_type),
                              scratch_bytes == 0 ? "" : " converted"),
          .library = eigen_version(),
          .variant = matmul_variant(p.looped ? 1 : p.batch, p.m, p.n, p.k, p.a_type, p.c_type),
          .workspace_bytes = static_cast<std::int64_t>(scratch_bytes),
          .launches = p.looped ? p.batch : 1};
}

/// 1 / scale of a slot.
float inverse_of(const void* slot) { return static_cast<const float*>(slot)[program::kFp8Inverse]; }

}  // namespace

/// A bias is added by bias_add (the plain form of the op).
Kernel make_matmul(const OpView& v) {
  constexpr std::size_t kBias = 2;
  constexpr std::size_t kSlots = 3;  // index of the slots among the inputs
  if (v.has_in(kBias) || core::is_packed(v.in(1).dtype)) return {};
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    const Problem p(v);
    const bool is_stored = p.is_computed_as_stored<C>();
    const bool shares_batch = p.batch > 1 && !p.looped;
    const std::size_t scratch_bytes = is_stored ? 0 : Blocks<C>(p).bytes();
    const auto resources = v.context;
    resources->scratch().reserve(scratch_bytes *
                                 (shares_batch ? static_cast<std::size_t>(resources->threads()) : 1));
    const bool is_scaled = v.has_in(kSlots);
    const auto run = [=](const KernelArgs& args) {
      const float scale = is_scaled ? inverse_of(args.in[kSlots]) * inverse_of(args.in[kSlots + 1]) : 1.0F;
      const auto one = [&](Index i) {
        const void* left = advance(static_cast<const void*>(args.in[0]), p.a_type, i * p.m * p.k);
        const void* right = advance(static_cast<const void*>(args.in[1]), p.b_type, i * p.k * p.n);
        void* to = advance(args.out[0], p.c_type, i * p.m * p.n);
        if (is_stored) return multiply_stored<C>(p, left, right, to);
        const auto thread = static_cast<std::size_t>(omp_get_thread_num());
        multiply_converted<C>(p, left, right, to, static_cast<C>(scale),
                              resources->scratch().data() + thread * scratch_bytes);
      };
      if (shares_batch) {
        for_rows(p.batch, one);
      } else {
        for (Index i = 0; i < p.batch; ++i) one(i);
      }
    };
    return {run, info_of(p, scratch_bytes)};
  });
}

namespace {

/// Multiplies the rows of each expert; `multiply(problem, first row, expert)` gets the problem with their
/// number as its extent `rows` (m, of weights' gradients k).
template <class C, class Multiply>
Kernel make_grouped(const OpView& v, Index Problem::*rows, Multiply&& multiply) {
  Problem largest(v);
  largest.*rows = rows_of(v.in(0));
  const std::size_t scratch_bytes = largest.is_computed_as_stored<C>() ? 0 : Blocks<C>(largest).bytes();
  v.context->scratch().reserve(scratch_bytes);
  const Index experts = v.in(2).shape.numel() - 1;
  const auto run = [=, resources = v.context](const KernelArgs& args) {
    const auto* offsets = static_cast<const std::int32_t*>(args.in[2]);
    for (Index e = 0; e < experts; ++e) {
      Problem p = largest;
      p.*rows = offsets[e + 1] - offsets[e];
      multiply(p, offsets[e], e, args, resources->scratch().data());
    }
  };
  Problem typical(v);  // one product for each expert that is touched
  typical.batch = v.integer("batch");
  typical.looped = true;
  return {run, info_of(typical, scratch_bytes)};
}

template <class C>
void multiply_any(const Problem& p, const void* a, const void* b, void* c, std::byte* scratch) {
  if (p.is_computed_as_stored<C>()) return multiply_stored<C>(p, a, b, c);
  multiply_converted<C>(p, a, b, c, C(1), scratch);
}

Kernel make_grouped_matmul(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    return make_grouped<C>(
        v, &Problem::m,
        [](const Problem& p, Index first, Index e, const KernelArgs& args, std::byte* scratch) {
          if (p.m == 0) return;
          multiply_any<C>(p, advance(args.in[0], p.a_type, first * p.k),
                          advance(args.in[1], p.b_type, e * p.k * p.n),
                          advance(args.out[0], p.c_type, first * p.n), scratch);
        });
  });
}

Kernel make_grouped_matmul_weight(const OpView& v) {
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    return make_grouped<C>(
        v, &Problem::k,
        [](const Problem& p, Index first, Index e, const KernelArgs& args, std::byte* scratch) {
          void* c = advance(args.out[0], p.c_type, e * p.m * p.n);
          if (p.k > 0) {
            multiply_any<C>(p, advance(args.in[0], p.a_type, first * p.m),
                            advance(args.in[1], p.b_type, first * p.n), c, scratch);
          } else if (!p.accumulate) {
            std::memset(c, 0, static_cast<std::size_t>(p.m * p.n) * core::size_of(p.c_type));
          }
        });
  });
}

}  // namespace

MakerRows matmul_rows() {
  namespace ops = program::ops;
  return {{&ops::kMatmul, make_matmul, "reference::matmul"},
          {&ops::kGroupedMatmul, make_grouped_matmul, "reference::grouped_matmul"},
          {&ops::kGroupedMatmulWeight, make_grouped_matmul_weight, "reference::grouped_matmul_weight"}};
}

}  // namespace rooflm::backends::cpu::reference
