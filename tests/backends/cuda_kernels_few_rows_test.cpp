// CUDA matmuls of few rows, of plain and packed weights, against plain loops in double; unpacked weights
// against the processor's; and kernels that start while the one before them runs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/kernels/activate.h"
#include "backends/cuda/kernels/chain.h"
#include "backends/cuda/kernels/few_rows/few_rows_gemm.h"
#include "backends/cuda/kernels/norm/norm.h"
#include "core/packed_weights.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {
namespace {

using backends::cuda::FewRowsGemm;
using core::DType;
using Numbers = std::vector<double>;

constexpr int kFewBlocks = 13;  // each has several tiles

/// A weight on the device, and the numbers that it stands for.
struct Weight {
  DType dtype;
  std::int64_t rows, width;
  Numbers values;
  std::unique_ptr<DeviceBytes> data, scale_values;

  Weight(DType format, std::int64_t n, std::int64_t k, unsigned seed) : dtype(format), rows(n), width(k) {
    const Numbers plain = random_values(core::is_packed(format) ? DType::f32 : format, n * k, seed);
    std::vector<std::byte> bytes;
    if (core::is_packed(format)) {
      std::vector<float> floats(plain.begin(), plain.end());
      if (format == DType::sparse) core::prune_2_of_4(floats);
      bytes.resize(at(core::packed_bytes(format, n * k, k)));
      core::pack(format, n, k, floats, bytes.data());
      const core::PackedMatrix matrix{.dtype = format, .rows = n, .width = k, .data = bytes.data()};
      std::vector<float> row(at(k));
      for (std::int64_t i = 0; i < n; ++i) {
        matrix.unpack(i, 0, k, row.data());
        values.insert(values.end(), row.begin(), row.end());
      }
    } else {
      values = plain;
      bytes.resize(at(n * k) * sizeof(std::uint16_t));
      for (std::size_t i = 0; i < plain.size(); ++i) {
        const auto value = static_cast<float>(plain[i]);
        const std::uint16_t half = format == DType::f16 ? core::F16(value).bits : core::Bf16(value).bits;
        std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
      }
    }
    data = std::make_unique<DeviceBytes>(bytes.size());
    check_cuda(cudaMemcpy(data->at(0), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "copying");
    scale_values = std::make_unique<DeviceBytes>(256 * sizeof(float));
    check_cuda(
        cudaMemcpy(scale_values->at(0), core::kScaleCodes, 256 * sizeof(float), cudaMemcpyHostToDevice),
        "copying");
  }
  [[nodiscard]] backends::cuda::PackedWeight view() const {
    return {.dtype = dtype,
            .rows = rows,
            .width = width,
            .data = data->at(0),
            .scale_values = static_cast<const float*>(scale_values->at(0))};
  }
};

/// a w^T + bias.
Numbers product(std::int64_t m, const Numbers& a, const Weight& w, const Numbers& bias) {
  Numbers c;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < w.rows; ++j) {
      double sum = bias.empty() ? 0 : bias[at(j)];
      for (std::int64_t k = 0; k < w.width; ++k)
        sum += a[at(i * w.width + k)] * w.values[at(j * w.width + k)];
      c.push_back(sum);
    }
  }
  return c;
}

struct FewRowsCase {
  std::int64_t m, n, k;
  bool bias = false;
};

void test_few_rows(DType factors, DType format, DType result, const FewRowsCase& c) {
  SCOPED_TRACE(std::string(core::name_of(factors)) + " x " + std::string(core::name_of(format)) + " -> " +
               std::string(core::name_of(result)) + " " + std::to_string(c.m) + "x" + std::to_string(c.n) +
               "x" + std::to_string(c.k));
  const Weight w(format, c.n, c.k, 1);
  const Numbers a = random_values(factors, c.m * c.k, 2, 1 / std::sqrt(static_cast<double>(c.k)));
  const Numbers bias = c.bias ? random_values(DType::f32, c.n, 3) : Numbers();
  const DeviceArray device_a(factors, a);
  const DeviceArray device_bias(DType::f32, at(c.n));
  if (c.bias) device_bias.write(bias);
  const DeviceArray out(result, at(c.m * c.n));
  const FewRowsGemm gemm{.factors = factors,
                         .result = result,
                         .bias_dtype = DType::f32,
                         .m = c.m,
                         .n = c.n,
                         .k = c.k,
                         .weight = w.view(),
                         .a = device_a.data(),
                         .bias = c.bias ? device_bias.data() : nullptr,
                         .c = out.data()};
  ASSERT_TRUE(has_few_rows_gemm(gemm));
  launch_few_rows_gemm(nullptr, gemm, kFewBlocks);
  // nf4 values are rounded to halves: 2^-9 of each term.
  const double rounding = result == DType::f32 ? 1e-5 : factors == DType::bf16 ? 4e-3 : 6e-4;
  const double tolerance = format != DType::nf4 ? rounding : factors == DType::bf16 ? 1e-2 : 2e-3;
  expect_close(out.read(), product(c.m, a, w, bias), tolerance);
}

constexpr DType kPacked[] = {DType::int8, DType::int4, DType::nf4, DType::fp8_rows};

TEST_F(CudaKernels, FewRowsOfPlainWeights) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t m : {1, 2, 7, 8}) test_few_rows(dtype, dtype, dtype, {m, 40, 256});
    for (const std::int64_t k : {8, 24, 32, 1000, 1600, 14336})
      test_few_rows(dtype, dtype, DType::f32, {1, 20, k});
    test_few_rows(dtype, dtype, dtype, {4, 1003, 520, true});
    test_few_rows(dtype, dtype, dtype, {5, 33, 14336});  // `a` does not fit in shared memory
  }
}

TEST_F(CudaKernels, FewRowsOfPackedWeights) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const DType format : kPacked) {
      for (const std::int64_t m : {1, 3, 8, 16, 17, 32}) test_few_rows(dtype, format, dtype, {m, 64, 256});
      for (const std::int64_t k : {128, 1664, 14336}) test_few_rows(dtype, format, DType::f32, {1, 64, k});
      test_few_rows(dtype, format, dtype, {2, 1024, 512, true});
      test_few_rows(dtype, format, dtype, {6, 128, 14336});
    }
    test_few_rows(dtype, DType::int8, dtype, {2, 9, 48});  // rows that end within a step
    test_few_rows(dtype, DType::fp8_rows, dtype, {2, 9, 80});
    test_few_rows(dtype, DType::int4, dtype, {2, 9, 384});
  }
}

TEST_F(CudaKernels, UnpackedWeightsAreTheProcessors) {
  for (const DType format : {DType::int8, DType::int4, DType::nf4, DType::fp8_rows, DType::sparse}) {
    for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
      SCOPED_TRACE(std::string(core::name_of(format)) + " to " + std::string(core::name_of(to)));
      const Weight w(format, 24, 512, 4);
      const DeviceArray out(to, w.values.size());
      launch_unpack(nullptr, w.view(), to, out.data());
      Numbers expected = w.values;
      for (double& value : expected) value = stored(to, value);
      // A fused multiply-add in the scales of nf4.
      const double tolerance = format != DType::nf4 ? 0 : to == DType::f32 ? 1e-6 : 4e-3;
      expect_close(out.read(), expected, tolerance);
    }
  }
}

/// A chain as decoding has them: norm, matmul, activation, matmul, again and again, in place.
Numbers chain(cudaStream_t stream, const Weight& up, const Weight& down, const Numbers& x, bool overlaps) {
  const std::int64_t width = up.width;
  const DeviceArray a(DType::bf16, x);
  const DeviceArray normed(DType::bf16, at(width)), wide(DType::bf16, at(up.rows)),
      narrow(DType::bf16, at(up.rows / 2));
  const DeviceArray rstd(DType::f32, 1);
  FewRowsGemm first{.factors = DType::bf16,
                    .result = DType::bf16,
                    .m = 1,
                    .n = up.rows,
                    .k = width,
                    .weight = up.view(),
                    .a = normed.data(),
                    .c = wide.data()};
  FewRowsGemm second{.factors = DType::bf16,
                     .result = DType::bf16,
                     .m = 1,
                     .n = width,
                     .k = up.rows / 2,
                     .weight = down.view(),
                     .a = narrow.data(),
                     .c = a.data()};
  backends::cuda::chain_launches(overlaps);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capturing");
  for (int i = 0; i < 24; ++i) {
    launch_rmsnorm(stream, {.dtype = DType::bf16,
                            .rows = 1,
                            .cols = width,
                            .eps = 1e-5F,
                            .x = a.data(),
                            .y = normed.data(),
                            .rstd = rstd.floats()});
    launch_few_rows_gemm(stream, first, kFewBlocks);
    launch_activate(stream,
                    {.kind = program::Activation::silu,
                     .is_gated = true,
                     .dtype = DType::bf16,
                     .rows = 1,
                     .width = up.rows / 2},
                    wide.data(), narrow.data());
    launch_few_rows_gemm(stream, second, kFewBlocks);
  }
  check_cuda(cudaStreamEndCapture(stream, &graph), "capturing");
  backends::cuda::chain_launches(false);
  check_cuda(cudaGraphInstantiate(&executable, graph, 0), "instantiating");
  check_cuda(cudaGraphLaunch(executable, stream), "launching");
  check_cuda(cudaStreamSynchronize(stream), "waiting");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return a.read();
}

TEST_F(CudaKernels, OverlappingStartsChangeNothing) {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  for (const DType format : {DType::bf16, DType::int8, DType::int4, DType::nf4, DType::fp8_rows}) {
    SCOPED_TRACE(std::string(core::name_of(format)));
    const Weight up(format, 1536, 256, 5);
    const Weight down(format, 256, 768, 6);
    const Numbers x = random_values(DType::bf16, 256, 7);
    const Numbers expected = chain(stream, up, down, x, false);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(chain(stream, up, down, x, true), expected);
  }
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace rooflm::tests
