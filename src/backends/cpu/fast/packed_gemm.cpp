// GEMMs whose right factor is a packed weight: few rows read codes once, more rows multiply unpacked panels.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>

#include "backends/cpu/fast/elementwise.h"
#include "backends/cpu/fast/gemm.h"
#include "backends/cpu/fast/maker.h"
#include "backends/cpu/fast/packed_codes.h"
#include "backends/cpu/fast/parallel.h"
#include "core/error.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::fast {
namespace {

/// c [m, n] (+)= a [m, k] op(w) (+ bias); w is stored as [n, k], or as [k, n] without trans_b.
struct Problem {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_b = false, accumulate = false;
  DType a_type = DType::f32, c_type = DType::f32;
  std::optional<DType> bias_type;

  explicit Problem(const OpView& v)
      : m(v.integer("m")),
        n(v.integer("n")),
        k(v.integer("k")),
        trans_b(v.op.attrs.flag("trans_b")),
        accumulate(v.accumulates()),
        a_type(v.in(0).dtype),
        c_type(v.out(0).dtype) {
    if (v.has_in(2)) bias_type = v.in(2).dtype;
  }
  [[nodiscard]] PackedMatrix weight(DType format, const void* data) const {
    return {.dtype = format,
            .rows = trans_b ? n : k,
            .width = trans_b ? k : n,
            .data = static_cast<const std::byte*>(data)};
  }
};

/// x [n] as floats: itself, or converted into `to`.
const float* as_floats(DType dtype, const void* x, std::int64_t n, float* to) {
  if (dtype == DType::f32) return static_cast<const float*>(x);
  if (dtype == DType::bf16) {
    cast(n, static_cast<const core::Bf16*>(x), to);
  } else {
    cast(n, static_cast<const core::F16*>(x), to);
  }
  return to;
}
void put_floats(const float* x, std::int64_t n, DType dtype, void* to, std::int64_t at) {
  if (dtype == DType::bf16) {
    cast(n, x, static_cast<core::Bf16*>(to) + at);
  } else if (dtype == DType::f16) {
    cast(n, x, static_cast<core::F16*>(to) + at);
  } else {
    std::copy_n(x, n, static_cast<float*>(to) + at);
  }
}

/// sums[r] = a[r] . row `row` of w, for kRows rows of a, in fp32: one order of terms, that of Codes.
template <template <DType> class Codes, DType kFormat, int kRows>
ROOFLM_INLINE void dot_row(const PackedMatrix& w, const Scales<kFormat>& scales, std::int64_t row,
                           const typename Codes<kFormat>::Factor* a, float* sums) {
  // Sums of blocks do not wait for each other.
  constexpr std::int64_t kBlock = 128, kTerms = Codes<kFormat>::kTerms;
  const std::int64_t group = group_of<kFormat>(w.width), groups = w.width / group;
  Floats total[kRows] = {};
  for (std::int64_t g = 0; g < groups; ++g) {
    const Floats scale = splat(scales[row * groups + g]);
    for (std::int64_t i = g * group; i < (g + 1) * group;) {
      Floats part[kRows] = {};
#pragma GCC unroll 2
      for (const std::int64_t end = std::min(i + kBlock, (g + 1) * group); i < end; i += kTerms) {
        const auto x = Codes<kFormat>::at(w, row * w.width + i);
        for (int r = 0; r < kRows; ++r) part[r] = x.dot(a + r * w.width + i, part[r]);
      }
      for (int r = 0; r < kRows; ++r) total[r] = fma(part[r], scale, total[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) sums[r] = sum_lanes(total[r]);
}

constexpr std::int64_t kMostRows = 8;

/// Columns [begin, end) of c, whose rows are n apart.
template <template <DType> class Codes, DType kFormat>
[[gnu::noipa]] void multiply_few(const PackedMatrix& w, std::int64_t m,
                                 const typename Codes<kFormat>::Factor* a, const float* bias, float* c,
                                 std::int64_t begin, std::int64_t end) {
  const Scales<kFormat> scales(w);
  const std::int64_t n = w.rows;
  for (std::int64_t j = begin; j < end; ++j) {
    float sums[kMostRows];
    std::int64_t r = 0;
    for (; r + 4 <= m; r += 4) dot_row<Codes, kFormat, 4>(w, scales, j, a + r * w.width, sums + r);
    for (; r + 2 <= m; r += 2) dot_row<Codes, kFormat, 2>(w, scales, j, a + r * w.width, sums + r);
    if (r < m) dot_row<Codes, kFormat, 1>(w, scales, j, a + r * w.width, sums + r);
    for (r = 0; r < m; ++r) c[r * n + j] = sums[r] + (bias == nullptr ? 0 : bias[j]);
  }
}

/// to [rows, count] = rows [begin, end) of w, columns [first, first + count).
template <DType kFormat, class E>
[[gnu::noipa]] void unpack(const PackedMatrix& w, std::int64_t first, std::int64_t count, E* to,
                           std::int64_t begin, std::int64_t end) {
  const Scales<kFormat> scales(w);
  const std::int64_t group = group_of<kFormat>(w.width);
  for (std::int64_t row = begin; row < end; ++row) {
    E* out = to + (row - begin) * count;
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t at = row * w.width + first + i;
      const std::int64_t stop = std::min(count, i + group - at % group);
      const Floats scale = splat(scales[at / group]);
      for (; i < stop; i += kLanes) store(out + i, codes_at<kFormat>(w, row * w.width + first + i) * scale);
    }
  }
}

/// Calls body.template operator()<format>().
template <class Body>
auto with_format(DType format, Body&& body) {
  switch (format) {
    case DType::int8:
      return body.template operator()<DType::int8>();
    case DType::int4:
      return body.template operator()<DType::int4>();
    case DType::nf4:
      return body.template operator()<DType::nf4>();
    case DType::fp8_rows:
      return body.template operator()<DType::fp8_rows>();
    case DType::sparse:
      return body.template operator()<DType::sparse>();
    default:
      return body.template operator()<DType::bf16>();
  }
}

KernelInfo info_of(const Problem& p, DType format, const char* name, std::int64_t bytes,
                   std::int64_t launches) {
  return {.name = fmt::format("{}<{}>", name, core::name_of(format)),
          .library = "rooflm",
          .variant = matmul_variant(1, p.m, p.n, p.k, p.a_type, p.c_type),
          .workspace_bytes = bytes,
          .launches = launches};
}

std::int64_t aligned(std::int64_t floats) { return (floats + 15) / 16 * 16; }

/// Decoding a few texts: one pass over the codes.
Kernel make_few(const OpView& v, const Problem& p, DType format) {
  const std::int64_t c_at = aligned(p.m * p.k), bias_at = c_at + aligned(p.m * p.n);
  const std::int64_t bytes = (bias_at + aligned(p.n)) * 4;
  v.context->scratch().reserve(static_cast<std::size_t>(bytes));
  const auto run = [p, format, c_at, bias_at, resources = v.context](const KernelArgs& args) {
    auto* scratch = reinterpret_cast<float*>(resources->scratch().data());
    const float* bias = p.bias_type ? as_floats(*p.bias_type, args.in[2], p.n, scratch + bias_at) : nullptr;
    const bool is_direct = p.c_type == DType::f32;
    auto* c = is_direct ? static_cast<float*>(args.out[0]) : scratch + c_at;
    const PackedMatrix w = p.weight(format, args.in[1]);
    const auto multiply = [&]<template <DType> class Codes, DType kFormat>(const auto* a) {
      constexpr std::int64_t kGrain = 32;
      parallel_for(p.n, kGrain, [&](std::int64_t begin, std::int64_t end) {
        multiply_few<Codes, kFormat>(w, p.m, a, bias, c, begin, end);
      });
    };
    with_format(format, [&]<DType kFormat>() {
#if defined(__AVX512BF16__)
      if constexpr (kHasPairs<kFormat>) {
        if (p.a_type == DType::bf16 && p.k % CodePairs<kFormat>::kTerms == 0) {
          auto* pairs = reinterpret_cast<core::Bf16*>(scratch);
          put_even_first(p.m * p.k, static_cast<const core::Bf16*>(args.in[0]), pairs);
          return multiply.template operator()<CodePairs, kFormat>(pairs);
        }
      }
#endif
      const float* a = as_floats(p.a_type, args.in[0], p.m * p.k, scratch);
      multiply.template operator()<CodeFloats, kFormat>(a);
    });
    if (!is_direct) put_floats(c, p.m * p.n, p.c_type, args.out[0], 0);
  };
  return {run, info_of(p, format, "packed_few_rows_gemm", bytes, 1)};
}

/// Panels of w in type E, each unpacked and multiplied by oneDNN: of w [n, k] so many rows, of w [k, n] so
/// many columns. Operands of other types than E are converted, c by columns.
template <class E>
class PanelGemm {
 public:
  /// Elements of a panel at most; at least kUnit columns of c.
  static constexpr std::int64_t kMostElements = std::int64_t{1} << 21U, kUnit = 128;
  static constexpr DType kType = std::is_same_v<E, float> ? DType::f32 : DType::bf16;

  PanelGemm(const Problem& p, DType format) : p_(p), format_(format) {
    wide_ = std::min(p.n, std::max(kUnit, kMostElements / p.k / kUnit * kUnit));
    converts_a_ = p.a_type != kType;
    rounds_ = p.c_type != DType::f32 && p.c_type != kType;
    whole_.emplace(gemm_problem(wide_));
    if (p.n % wide_ != 0) rest_.emplace(gemm_problem(p.n % wide_));
    std::size_t gemm_bytes = whole_->scratch_bytes();
    if (rest_) gemm_bytes = std::max(gemm_bytes, rest_->scratch_bytes());
    a_at_ = aligned(wide_ * p.k);
    c_at_ = a_at_ + (converts_a_ ? aligned(p.m * p.k) : 0);
    bias_at_ = c_at_ + (rounds_ ? aligned(p.m * wide_) : 0);
    gemm_at_ = bias_at_ + (p.bias_type ? aligned(p.n) : 0);
    bytes_ = gemm_at_ * 4 + static_cast<std::int64_t>(gemm_bytes);
  }
  [[nodiscard]] std::int64_t scratch_bytes() const { return bytes_; }
  [[nodiscard]] std::int64_t launches() const { return (p_.n + wide_ - 1) / wide_; }

  void operator()(const KernelArgs& args, std::byte* scratch) const {
    auto* floats = reinterpret_cast<float*>(scratch);
    auto* panel = reinterpret_cast<E*>(scratch);
    const PackedMatrix w = p_.weight(format_, args.in[1]);
    const void* a = converts_a_ ? as_floats(p_.a_type, args.in[0], p_.m * p_.k, floats + a_at_) : args.in[0];
    const float* bias =
        p_.bias_type ? as_floats(*p_.bias_type, args.in[2], p_.n, floats + bias_at_) : nullptr;
    for (std::int64_t j = 0; j < p_.n; j += wide_) {
      const std::int64_t count = std::min(wide_, p_.n - j);
      load_panel(w, j, count, panel);
      const auto c_bytes = static_cast<std::int64_t>(core::size_of(p_.c_type));
      void* c =
          rounds_ ? floats + c_at_ : static_cast<void*>(static_cast<std::byte*>(args.out[0]) + j * c_bytes);
      (count == wide_ ? *whole_ : *rest_)(a, panel, c, bias == nullptr ? nullptr : bias + j,
                                          floats + gemm_at_);
      if (rounds_) round(floats + c_at_, j, count, args.out[0]);
    }
  }

 private:
  [[nodiscard]] GemmProblem gemm_problem(std::int64_t columns) const {
    return {.m = p_.m,
            .n = columns,
            .k = p_.k,
            .trans_b = p_.trans_b,
            .a_type = kType,
            .b_type = kType,
            .c_type = rounds_ ? DType::f32 : p_.c_type,
            .bias = p_.bias_type.has_value(),
            .accumulate = p_.accumulate,
            .ldc = rounds_ ? columns : p_.n};
  }
  void load_panel(const PackedMatrix& w, std::int64_t j, std::int64_t count, E* panel) const {
    const std::int64_t rows = p_.trans_b ? count : p_.k, columns = p_.trans_b ? p_.k : count;
    const std::int64_t first_row = p_.trans_b ? j : 0, first = p_.trans_b ? 0 : j;
    with_format(format_, [&]<DType kFormat>() {
      parallel_for(rows, 1, [&](std::int64_t begin, std::int64_t end) {
        unpack<kFormat>(w, first, columns, panel + begin * columns, first_row + begin, first_row + end);
      });
    });
  }
  void round(const float* from, std::int64_t j, std::int64_t count, void* c) const {
    parallel_for(p_.m, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        put_floats(from + r * count, count, p_.c_type, c, r * p_.n + j);
    });
  }

  Problem p_;
  DType format_;
  bool converts_a_ = false, rounds_ = false;
  std::int64_t wide_ = 0;
  std::int64_t a_at_ = 0, c_at_ = 0, bias_at_ = 0, gemm_at_ = 0, bytes_ = 0;  ///< in floats, but bytes_
  std::optional<Gemm> whole_, rest_;
};

template <class E>
Kernel make_panels(const OpView& v, const Problem& p, DType format) {
  std::shared_ptr<const PanelGemm<E>> gemm;
  try {
    gemm = std::make_shared<const PanelGemm<E>>(p, format);
  } catch (const core::Unavailable&) {
    return {};
  }
  v.context->scratch().reserve(static_cast<std::size_t>(gemm->scratch_bytes()));
  const auto run = [gemm, resources = v.context](const KernelArgs& args) {
    (*gemm)(args, resources->scratch().data());
  };
  return {run, info_of(p, format, "packed_gemm", gemm->scratch_bytes(), gemm->launches())};
}

/// A weight that is packed, or in 16 bits beside fp32 activations.
Kernel make_packed_matmul(const OpView& v) {
  const DType format = v.in(1).dtype;
  const Problem p(v);
  const bool is_ours = core::is_packed(format) || (format == DType::bf16 && p.a_type == DType::f32);
  const auto is_storage = [](DType dtype) {
    return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
  };
  const bool has_plain_rows = v.integer("batch") == 1 && !v.op.attrs.flag("trans_a") &&
                              !v.op.attrs.has("a_stride") && !v.op.attrs.has("c_stride") &&
                              (p.trans_b ? p.k : p.n) % kLanes == 0;
  const bool has_types =
      is_storage(p.a_type) && is_storage(p.c_type) && (!p.bias_type || is_storage(*p.bias_type));
  if (!is_ours || !has_plain_rows || !has_types) return {};
  if (p.accumulate && (p.c_type != DType::f32 || p.bias_type)) return {};
  if (p.trans_b && p.m <= kMostRows && !p.accumulate) return make_few(v, p, format);
  if (p.a_type == DType::bf16 && p.c_type != DType::f16 && has_bf16_gemms())
    return make_panels<core::Bf16>(v, p, format);
  return make_panels<float>(v, p, format);
}

}  // namespace

MakerRows packed_gemm_rows() {
  return {{&program::ops::kMatmul, make_packed_matmul, "matmul of packed weights"}};
}

}  // namespace rooflm::backends::cpu::fast
