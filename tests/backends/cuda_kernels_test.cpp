// CUDA launchers against plain loops: elementwise maps, sums over rows, norms, heads, rotary
// positions.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "backends/cuda/kernels/column_sums.h"
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/fill.h"
#include "backends/cuda/kernels/gelu_backward.h"
#include "backends/cuda/kernels/heads.h"
#include "backends/cuda/kernels/norm/norm.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {
namespace {

using namespace backends::cuda;  // NOLINT(google-build-using-namespace): the launchers are what is tested
using core::DType;
using Values = std::vector<double>;

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST_F(CudaKernels, FillsWriteTheirBytesAndNoOthers) {
  constexpr std::size_t kAll = 5000;
  std::vector<unsigned char> bytes(kAll);
  for (const std::size_t first : {0U, 1U, 4U, 15U, 16U}) {
    for (const std::size_t count : {0U, 1U, 3U, 15U, 16U, 40U, 4096U}) {
      SCOPED_TRACE(std::to_string(count) + " bytes from " + std::to_string(first));
      const DeviceBytes memory(kAll);
      check_cuda(cudaMemcpy(bytes.data(), memory.at(0), kAll, cudaMemcpyDeviceToHost), "copying out");
      std::vector<unsigned char> expected = bytes;
      for (std::size_t i = 0; i < count; ++i) expected[first + i] = static_cast<unsigned char>(1 + i % 4);
      launch_fill(nullptr, {.to = memory.at(first), .bytes = count, .pattern = 0x04030201U});
      check_cuda(cudaMemcpy(bytes.data(), memory.at(0), kAll, cudaMemcpyDeviceToHost), "copying out");
      EXPECT_EQ(bytes, expected);
    }
  }
}

TEST_F(CudaKernels, MapsOfElements) {
  constexpr std::int64_t kCount = 4099;
  for_types([](DType dtype, std::size_t shift) {
    const Values x = random_values(dtype, kCount, 1, 2);
    const Values y = random_values(dtype, kCount, 2);
    const DeviceArray dx(dtype, x, shift);
    const DeviceArray dy(dtype, y);
    const DeviceArray out(dtype, x.size(), shift);
    Values sum, activated, gradient;
    for (std::size_t i = 0; i < x.size(); ++i) {
      sum.push_back(stored(dtype, x[i] + y[i]));
      activated.push_back(gelu(x[i]));
      constexpr double kStep = 1e-5;
      gradient.push_back(y[i] * (gelu(x[i] + kStep) - gelu(x[i] - kStep)) / (2 * kStep));
    }
    launch_add(nullptr, dtype, kCount, dx.data(), dy.data(), out.data());
    EXPECT_EQ(out.read(), sum);
    launch_gelu(nullptr, dtype, kCount, dx.data(), out.data());
    expect_close(out.read(), activated, tolerance_of(dtype));
    const DeviceArray again(dtype, x.size(), shift);
    const DeviceArray alone(dtype, x.size());
    GeluBackward gelu{.rows = 1, .cols = kCount, .dy = dy.data(), .x = dx.data(), .dx = alone.data()};
    launch_gelu_backward(nullptr, dtype, gelu);
    gelu.dx = dy.data();  // in place
    gelu.y = again.data();
    launch_gelu_backward(nullptr, dtype, gelu);
    expect_close(dy.read(), gradient, tolerance_of(dtype));
    EXPECT_EQ(dy.read(), alone.read());
    EXPECT_EQ(again.read(), out.read()) << "gelu again, bit for bit";
  });
}

/// In fp32, in the order of ranks, rounded once; what is added to is added to the rounded sum.
TEST_F(CudaKernels, SumsOfParts) {
  for (const std::int64_t count : {1, 37, 4096, 4099}) {
    for (const int parts : {1, 2, 3, 8}) {
      for_types([&](DType dtype, std::size_t shift) {
        const Values x = random_values(dtype, count * parts, 11, 2);
        const Values before = random_values(dtype, count, 12, 2);
        Values once, added;
        for (std::int64_t i = 0; i < count; ++i) {
          auto sum = static_cast<float>(x[at(i)]);
          for (int part = 1; part < parts; ++part) sum += static_cast<float>(x[at(part * count + i)]);
          once.push_back(stored(dtype, sum));
          added.push_back(stored(dtype, static_cast<float>(once.back()) + static_cast<float>(before[at(i)])));
        }
        const DeviceArray device_x(dtype, x, shift);
        const DeviceArray out(dtype, before, shift);
        launch_sum_parts(nullptr, dtype, count, parts, device_x.data(), out.data(), true);
        EXPECT_EQ(out.read(), added) << parts << " of " << count;
        launch_sum_parts(nullptr, dtype, count, parts, device_x.data(), out.data(), false);
        EXPECT_EQ(out.read(), once) << parts << " of " << count;
        launch_sum_parts(nullptr, dtype, count, parts, device_x.data(), device_x.data(), false);
        Values in_place = device_x.read();
        in_place.resize(once.size());
        EXPECT_EQ(in_place, once) << "in place, " << parts << " of " << count;
      });
    }
  }
}

TEST_F(CudaKernels, GeluOfExtremes) {
  const Values x{-1e30, -300, -90, -20, 0, 20, 90, 300, 1e30};
  for_types([&](DType dtype, std::size_t shift) {
    const DeviceArray device(dtype, x, shift);
    const Values kept = device.read();
    Values expected;
    for (const double value : kept) expected.push_back(value > 0 ? value : 0);
    const DeviceArray gradient(dtype, Values(x.size(), 2.0));
    launch_gelu_backward(nullptr, dtype,
                         {.rows = 1,
                          .cols = static_cast<std::int64_t>(x.size()),
                          .dy = gradient.data(),
                          .x = device.data(),
                          .dx = gradient.data()});
    launch_gelu(nullptr, dtype, static_cast<std::int64_t>(x.size()), device.data(), device.data());
    expect_close(device.read(), expected, tolerance_of(dtype));
    Values slopes;
    for (const double value : kept) slopes.push_back(value > 0 ? 2 : (value < 0 ? 0 : 1));
    expect_close(gradient.read(), slopes, tolerance_of(dtype));
  });
}

TEST_F(CudaKernels, GeluOfNaNIsNaN) {
  for_types([](DType dtype, std::size_t shift) {
    const Values nans(9, std::numeric_limits<double>::quiet_NaN());
    const DeviceArray x(dtype, nans, shift);
    const DeviceArray dx(dtype, Values(nans.size(), 1.0));
    const DeviceArray y(dtype, Values(nans.size(), 1.0));
    launch_gelu_backward(nullptr, dtype,
                         {.rows = 1,
                          .cols = static_cast<std::int64_t>(nans.size()),
                          .dy = dx.data(),
                          .x = x.data(),
                          .dx = dx.data(),
                          .y = y.data()});
    for (const double value : dx.read()) EXPECT_TRUE(std::isnan(value));
    for (const double value : y.read()) EXPECT_TRUE(std::isnan(value));
  });
}

TEST_F(CudaKernels, CastRoundsToNearestEven) {
  const Values x = random_values(DType::f32, 1003, 3);
  const DeviceArray single(DType::f32, x);
  const DeviceArray half(DType::bf16, x.size(), 1);
  const DeviceArray back(DType::f32, x.size());
  launch_cast(nullptr, 1003, DType::f32, single.data(), DType::bf16, half.data());
  launch_cast(nullptr, 1003, DType::bf16, half.data(), DType::f32, back.data());
  Values expected;
  for (const double value : x) expected.push_back(stored(DType::bf16, value));
  EXPECT_EQ(half.read(), expected);
  EXPECT_EQ(back.read(), expected);
}

TEST_F(CudaKernels, SwiGlu) {
  for (const std::int64_t width : {40, 37}) {
    for_types([&](DType dtype, std::size_t shift) {
      constexpr std::int64_t kRows = 13;
      const Values h = random_values(dtype, kRows * 2 * width, 4, 2);
      const Values dy = random_values(dtype, kRows * width, 5);
      Values y, dh(h.size());
      for (std::int64_t r = 0; r < kRows; ++r) {
        for (std::int64_t f = 0; f < width; ++f) {
          const double gate = h[at(r * 2 * width + f)];
          const double up = h[at(r * 2 * width + width + f)];
          const double s = sigmoid(gate);
          const double d = dy[at(r * width + f)];
          y.push_back(gate * s * up);
          dh[at(r * 2 * width + f)] = d * up * s * (1 + gate * (1 - s));
          dh[at(r * 2 * width + width + f)] = d * gate * s;
        }
      }
      const DeviceArray device_h(dtype, h, shift);
      const DeviceArray device_dy(dtype, dy);
      const DeviceArray device_y(dtype, y.size());
      launch_swiglu(nullptr, dtype, kRows, width, device_h.data(), device_y.data());
      expect_close(device_y.read(), y, tolerance_of(dtype));
      const DeviceArray again(dtype, y.size(), shift);
      const DeviceArray alone(dtype, h.size());
      launch_swiglu_backward(nullptr, dtype, kRows, width, device_dy.data(), device_h.data(), alone.data(),
                             nullptr);
      launch_swiglu_backward(nullptr, dtype, kRows, width, device_dy.data(), device_h.data(), device_h.data(),
                             again.data());  // in place
      expect_close(device_h.read(), dh, tolerance_of(dtype));
      EXPECT_EQ(device_h.read(), alone.read());
      EXPECT_EQ(again.read(), device_y.read()) << "swiglu again, bit for bit";
    });
  }
}

TEST_F(CudaKernels, BiasAndItsGradient) {
  for (const auto& [rows, cols] : {std::pair{517, 264}, std::pair{1, 8}, std::pair{70, 13}}) {
    for_types([rows = rows, cols = cols](DType dtype, std::size_t shift) {
      const Values x = random_values(dtype, std::int64_t{rows} * cols, 6);
      const Values bias = random_values(DType::f32, cols, 7);
      const DeviceArray device_x(dtype, x, shift);
      const DeviceArray device_bias(DType::f32, bias);
      const DeviceArray y(dtype, x.size());
      Values biased, sums(bias.begin(), bias.end());
      for (std::size_t i = 0; i < x.size(); ++i) {
        biased.push_back(stored(dtype, x[i] + bias[i % bias.size()]));
        sums[i % bias.size()] += x[i];
      }
      launch_bias_add(nullptr, dtype, rows, cols, device_x.data(), device_bias.floats(), y.data());
      expect_close(y.read(), biased, dtype == DType::f32 ? 0 : tolerance_of(dtype));
      const DeviceBytes workspace(bias_backward_workspace_bytes(rows, cols));
      launch_bias_backward(nullptr, dtype, rows, cols, device_x.data(), device_bias.floats(), true,
                           workspace.at(0));
      expect_close(device_bias.read(), sums, 1e-5);
      for (std::size_t c = 0; c < sums.size(); ++c) sums[c] -= bias[c];
      launch_bias_backward(nullptr, dtype, rows, cols, device_x.data(), device_bias.floats(), false,
                           workspace.at(0));
      expect_close(device_bias.read(), sums, 1e-5);
    });
  }
}

/// With the bits of the ops that it stands for, in place, for few and many rows per thread.
TEST_F(CudaKernels, GeluGradientSumsItsColumns) {
  for (const auto& [rows, cols] :
       {std::pair{517, 264}, std::pair{1, 8}, std::pair{70, 13}, std::pair{9001, 520}}) {
    for_types([rows = rows, cols = cols](DType dtype, std::size_t shift) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols));
      const std::int64_t count = std::int64_t{rows} * cols;
      const DeviceArray dy(dtype, random_values(dtype, count, 6), shift);
      const DeviceArray x(dtype, random_values(dtype, count, 7, 2), shift);
      const DeviceArray dx(dtype, at(count), shift);
      const DeviceArray y(dtype, at(count), shift);
      const DeviceArray again(dtype, at(count), shift);
      const Values before = random_values(DType::f32, cols, 8);
      const DeviceArray db(DType::f32, before);
      const DeviceArray sums(DType::f32, before);
      const DeviceBytes workspace(bias_backward_workspace_bytes(rows, cols));
      GeluBackward gelu{.rows = rows, .cols = cols, .dy = dy.data(), .x = x.data(), .dx = dx.data()};
      launch_gelu_backward(nullptr, dtype, gelu);
      launch_gelu(nullptr, dtype, count, x.data(), y.data());
      gelu.dx = dy.data();
      gelu.y = again.data();
      gelu.db = db.floats();
      gelu.workspace = workspace.at(0);
      for (const bool accumulate : {true, false}) {
        if (!accumulate) {  // dy is dx by now
          gelu.dx = again.data();
          gelu.y = nullptr;
        }
        gelu.accumulate = accumulate;
        launch_gelu_backward(nullptr, dtype, gelu);
        launch_bias_backward(nullptr, dtype, rows, cols, gelu.dx, sums.floats(), accumulate, workspace.at(0));
        EXPECT_EQ(db.read(), sums.read());
        if (accumulate) {
          EXPECT_EQ(dy.read(), dx.read());
          EXPECT_EQ(again.read(), y.read());
        }
      }
    });
  }
}

/// For rows of a warp and of a block, and where the sums are a kernel of their own: long or unaligned rows.
TEST_F(CudaKernels, LayerNormGradientSumsItsResult) {
  for (const auto& [rows, cols] : {std::pair{301, 64}, std::pair{1500, 768}, std::pair{301, 1600},
                                   std::pair{70, 13}, std::pair{129, 8200}, std::pair{5, 16384}}) {
    for_types([rows = rows, cols = cols](DType dtype, std::size_t shift) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols));
      const std::int64_t count = std::int64_t{rows} * cols;
      const DeviceArray dy(dtype, random_values(dtype, count, 1), shift);
      const DeviceArray x(dtype, random_values(dtype, count, 2), shift);
      const DeviceArray rest(dtype, random_values(dtype, count, 3), shift);
      const DeviceArray weight(DType::f32, random_values(DType::f32, cols, 4));
      const DeviceArray mean(DType::f32, random_values(DType::f32, rows, 5));
      const DeviceArray rstd(DType::f32, Values(at(rows), 1.5));
      const DeviceArray alone(dtype, at(count), shift);
      const DeviceArray dx(dtype, at(count), shift);
      const DeviceArray dweight(DType::f32, at(cols));
      const DeviceArray dbias(DType::f32, at(cols));
      const Values before = random_values(DType::f32, cols, 6);
      const DeviceArray sums(DType::f32, before);
      const DeviceBytes workspace(norm_backward_workspace_bytes(rows, cols, 3));
      NormBackward norm{.dtype = dtype, .rows = rows, .cols = cols, .dy = dy.data(), .x = x.data()};
      norm.weight = weight.floats();
      norm.mean = mean.floats();
      norm.rstd = rstd.floats();
      norm.d_residual = rest.data();
      norm.dx = alone.data();
      norm.dweight = dweight.floats();
      norm.dbias = dbias.floats();
      norm.workspace = workspace.at(0);
      launch_layernorm_backward(nullptr, norm);
      const Values expected_dweight = dweight.read();
      const Values expected_dbias = dbias.read();
      norm.dx = dx.data();
      norm.dx_sums = sums.floats();
      for (const bool accumulate : {true, false}) {
        Values expected = accumulate ? before : Values(before.size());
        norm.accumulate = accumulate;
        launch_layernorm_backward(nullptr, norm);
        const Values result = dx.read();
        for (std::size_t i = 0; i < result.size(); ++i) expected[i % expected.size()] += result[i];
        EXPECT_EQ(result, alone.read());
        expect_close(sums.read(), expected, 1e-5 + 3e-8 * rows);
      }
      EXPECT_EQ(dweight.read(), expected_dweight);
      EXPECT_EQ(dbias.read(), expected_dbias);
    });
  }
}

TEST_F(CudaKernels, HeadsMoveThereAndBack) {
  for (const std::int64_t dim : {16, 5}) {
    for_types([&](DType dtype, std::size_t shift) {
      const HeadsShape s{.batch = 2, .seq = 7, .heads = 6, .kv_heads = 2, .head_dim = dim};
      const std::int64_t position = s.batch * s.seq;
      const Values packed = random_values(dtype, position * s.width(), 8);
      const DeviceArray qkv(dtype, packed, shift);
      const DeviceArray q(dtype, at(position * s.heads * dim));
      const DeviceArray k(dtype, at(position * s.kv_heads * dim));
      const DeviceArray v(dtype, at(position * s.kv_heads * dim));
      launch_split_heads(nullptr, dtype, s, qkv.data(), q.data(), k.data(), v.data());
      const auto expected = [&](std::int64_t first, std::int64_t count) {
        Values heads;
        for (std::int64_t b = 0; b < s.batch; ++b) {
          for (std::int64_t h = 0; h < count; ++h) {
            for (std::int64_t t = 0; t < s.seq; ++t) {
              for (std::int64_t d = 0; d < dim; ++d) {
                heads.push_back(packed[at((b * s.seq + t) * s.width() + (first + h) * dim + d)]);
              }
            }
          }
        }
        return heads;
      };
      EXPECT_EQ(q.read(), expected(0, s.heads));
      EXPECT_EQ(k.read(), expected(s.heads, s.kv_heads));
      EXPECT_EQ(v.read(), expected(s.heads + s.kv_heads, s.kv_heads));
      const DeviceArray joined(dtype, packed.size(), shift);
      launch_join_heads(nullptr, dtype, s, q.data(), k.data(), v.data(), joined.data());
      EXPECT_EQ(joined.read(), packed);
      const DeviceArray merged(dtype, at(position * s.heads * dim));
      const DeviceArray again(dtype, at(position * s.heads * dim));
      launch_merge_heads(nullptr, dtype, s, q.data(), merged.data());
      launch_unmerge_heads(nullptr, dtype, s, merged.data(), again.data());
      EXPECT_EQ(again.read(), q.read());
      EXPECT_EQ(merged.read().at(at(dim)), q.read().at(at(s.seq * dim)));  // position 0 of head 1
    });
  }
}

struct RotaryCase {
  std::int64_t dim, pairs, begin = 0;  ///< of a head
};

/// Pairs of a head by eights, fours, twos and one by one; some heads rotate a part of their elements.
TEST_F(CudaKernels, RotaryPositions) {
  constexpr double kAmplitude = 1.25;
  for (const auto [dim, half, begin] : {RotaryCase{32, 16},
                                        {40, 20},
                                        {12, 6},
                                        {10, 5},
                                        {80, 16},
                                        {24, 4},
                                        {9, 2},
                                        {48, 8, 32},
                                        {40, 4, 12},
                                        {9, 3, 2}}) {
    for_types([&](DType dtype, std::size_t shift) {
      SCOPED_TRACE("heads of " + std::to_string(dim) + ", pairs " + std::to_string(half) + " from " +
                   std::to_string(begin));
      const HeadsShape s{.batch = 2, .seq = 9, .heads = 4, .kv_heads = 2, .head_dim = dim};
      const Values x = random_values(dtype, s.batch * s.seq * s.width(), 9);
      Values frequencies;
      for (std::int64_t i = 0; i < half; ++i)
        frequencies.push_back(std::pow(500.0, -static_cast<double>(i) / static_cast<double>(half)) / 1.7);
      Values expected = x;
      for (std::int64_t r = 0; r < s.batch * s.seq; ++r) {
        for (std::int64_t i = 0; i < (s.heads + s.kv_heads) * half; ++i) {
          const double angle = static_cast<double>(r % s.seq) * frequencies[at(i % half)];
          const std::size_t a = at(r * s.width() + i / half * dim + begin + i % half);
          const std::size_t b = a + at(half);
          expected[a] = kAmplitude * (x[a] * std::cos(angle) - x[b] * std::sin(angle));
          expected[b] = kAmplitude * (x[b] * std::cos(angle) + x[a] * std::sin(angle));
        }
      }
      const DeviceBytes device_frequencies(frequencies.size() * sizeof(double));
      check_cuda(cudaMemcpy(device_frequencies.at(0), frequencies.data(), device_frequencies.bytes(),
                            cudaMemcpyHostToDevice),
                 "copying");
      const DeviceArray cosines(DType::f32, at(s.seq * half));
      const DeviceArray sines(DType::f32, at(s.seq * half));
      launch_rope_tables(nullptr, s.seq, half, static_cast<const double*>(device_frequencies.at(0)),
                         kAmplitude, {}, cosines.floats(), sines.floats());
      const DeviceArray from(dtype, x, shift);
      const DeviceArray to(dtype, x.size(), shift);
      launch_rope(nullptr, dtype, s, {half, begin}, from.data(), cosines.floats(), sines.floats(), false,
                  nullptr, to.data());
      expect_close(to.read(), expected, tolerance_of(dtype));
      const DeviceArray in_place(dtype, x, shift);
      launch_rope(nullptr, dtype, s, {half, begin}, in_place.data(), cosines.floats(), sines.floats(), false,
                  nullptr, in_place.data());
      EXPECT_EQ(in_place.read(), to.read());
      launch_rope(nullptr, dtype, s, {half, begin}, to.data(), cosines.floats(), sines.floats(), true,
                  nullptr, to.data());
      Values back = x;
      for (std::int64_t r = 0; r < s.batch * s.seq; ++r) {
        for (std::int64_t i = 0; i < (s.heads + s.kv_heads) * 2 * half; ++i) {
          back[at(r * s.width() + i / (2 * half) * dim + begin + i % (2 * half))] *= kAmplitude * kAmplitude;
        }
      }
      expect_close(to.read(), back, 4 * tolerance_of(dtype));
    });
  }
}

}  // namespace
}  // namespace rooflm::tests
