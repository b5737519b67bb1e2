// Matmuls by packed weights: the products of the numbers that codes stand for, with few rows and with more.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/f16.h"
#include "core/packed_weights.h"
#include "core/rng.h"
#include "program/ops.h"

namespace rooflm::backends {
namespace {

using core::DType;
using program::TensorId;

struct Sizes {
  std::int64_t m, n, k;
};

/// `n` normal numbers, and the bytes of them in `dtype`, to which they are rounded.
struct Numbers {
  std::vector<float> values;
  std::vector<std::byte> bytes;

  Numbers(std::int64_t n, DType dtype, std::uint64_t seed) : values(static_cast<std::size_t>(n)) {
    bytes.resize(values.size() * core::size_of(dtype));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float x = core::normal(seed, 0, i);
      if (dtype == DType::bf16) {
        put(i, core::Bf16(x));
      } else if (dtype == DType::f16) {
        put(i, core::F16(x));
      } else {
        put(i, x);
      }
    }
  }

 private:
  template <class T>
  void put(std::size_t i, T x) {
    values[i] = static_cast<float>(x);
    reinterpret_cast<T*>(bytes.data())[i] = x;
  }
};

/// c [m, n] = a [m, k] w^T + bias, of which c is fp32.
void check_matmul(DType format, DType factors, const Sizes& s) {
  const std::string what = std::string(core::name_of(format)) + " times " +
                           std::string(core::name_of(factors)) + " " + std::to_string(s.m) + " x " +
                           std::to_string(s.n) + " x " + std::to_string(s.k);
  program::Program program;
  const TensorId a = program.add_tensor({.name = "a", .shape = {s.m, s.k}, .dtype = factors});
  const TensorId w =
      program.add_tensor({.name = "w", .shape = {s.n, s.k}, .dtype = format, .role = program::Role::weight});
  const TensorId bias = program.add_tensor({.name = "bias", .shape = {s.n}, .role = program::Role::weight});
  const TensorId c = program.add_tensor({.name = "c", .shape = {s.m, s.n}});
  program::Op op;
  op.def = &program::ops::kMatmul;
  op.inputs = {a, w, bias};
  op.outputs = {c};
  op.attrs = {{"batch", std::int64_t{1}}, {"m", s.m},       {"n", s.n}, {"k", s.k},
              {"trans_a", false},         {"trans_b", true}};
  program.ops.push_back(op);
  Numbers left(s.m * s.k, factors, 1), offset(s.n, DType::f32, 2);
  const Numbers whole(s.n * s.k, DType::f32, 3);
  std::vector<std::byte> codes(static_cast<std::size_t>(core::packed_bytes(format, s.n * s.k, s.k)));
  core::pack(format, s.n, s.k, whole.values, codes.data());
  const core::PackedMatrix matrix{.dtype = format, .rows = s.n, .width = s.k, .data = codes.data()};

  std::vector<float> result(static_cast<std::size_t>(s.m * s.n), -1.0F);
  const auto backend = make_cpu_backend(CpuKernels::fast, 2);
  const auto kernel = backend->make_kernel(program, program.ops[0]);
  std::vector<void*> in = {left.bytes.data(), codes.data(), offset.bytes.data()}, out = {result.data()};
  kernel({in, out});

  std::vector<float> row(static_cast<std::size_t>(s.k));
  // bf16 panels of more rows round what codes stand for; pairs hold a number of nf4 to 2^-17.
  const double rounding = s.m > 8 && factors == DType::bf16 ? 0x1p-8 : 1e-5;
  for (std::int64_t j = 0; j < s.n; ++j) {
    matrix.unpack(j, 0, s.k, row.data());
    for (std::int64_t i = 0; i < s.m; ++i) {
      double sum = 0, size = 0;
      for (std::int64_t l = 0; l < s.k; ++l) {
        const double term = static_cast<double>(left.values[static_cast<std::size_t>(i * s.k + l)]) *
                            static_cast<double>(row[static_cast<std::size_t>(l)]);
        sum += term;
        size += std::abs(term);
      }
      const auto at = static_cast<std::size_t>(i * s.n + j);
      ASSERT_NEAR(result[at], sum + static_cast<double>(offset.values[static_cast<std::size_t>(j)]),
                  rounding * size)
          << what << ", row " << i << ", column " << j;
    }
  }
}

TEST(CpuPacked, MatmulsMultiplyWhatCodesStandFor) {
  for (const DType format : {DType::int8, DType::int4, DType::nf4, DType::fp8_rows, DType::sparse}) {
    for (const DType factors : {DType::f32, DType::bf16, DType::f16}) {
      for (const std::int64_t m : {1, 2, 3, 7, 8, 9, 40}) {
        check_matmul(format, factors, {.m = m, .n = 64, .k = 128});
        check_matmul(format, factors, {.m = m, .n = 96, .k = 384});
      }
    }
  }
}

}  // namespace
}  // namespace rooflm::backends
