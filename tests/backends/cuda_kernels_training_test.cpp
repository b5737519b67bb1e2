// CUDA launchers against plain loops: norms, embeddings, cross entropy.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/kernels/cross_entropy.h"
#include "backends/cuda/kernels/embedding.h"
#include "backends/cuda/kernels/norm/norm.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {
namespace {

using namespace backends::cuda;  // NOLINT(google-build-using-namespace): the launchers are what is tested
using core::DType;
using Values = std::vector<double>;

constexpr std::array kTypes{DType::f32, DType::bf16};

/// Mean and 1 / standard deviation of a row, or 0 and 1 / root of the mean square.
std::pair<double, double> statistics(const double* x, std::int64_t cols, bool centred, double eps) {
  double mean = 0;
  double square = 0;
  for (std::int64_t c = 0; c < cols; ++c) mean += x[c] / static_cast<double>(cols);
  if (!centred) mean = 0;
  for (std::int64_t c = 0; c < cols; ++c) square += (x[c] - mean) * (x[c] - mean) / static_cast<double>(cols);
  return {mean, 1 / std::sqrt(square + eps)};
}

/// One size of both norms, forward with the residual addition and backward with a residual gradient.
void test_norm(DType dtype, std::int64_t rows, std::int64_t cols, bool layer, std::size_t shift) {
  constexpr double kEps = 1e-5;
  const Values x = random_values(dtype, rows * cols, 1);
  const Values y = random_values(dtype, rows * cols, 2);
  const Values w = random_values(DType::f32, cols, 3);
  const Values b = random_values(DType::f32, cols, 4);
  const Values dy = random_values(dtype, rows * cols, 5);
  const Values rest = random_values(dtype, rows * cols, 6);
  Values sum, normed(x.size()), mean, rstd, dx(x.size()), dw = w, db = b;
  for (std::size_t i = 0; i < x.size(); ++i) sum.push_back(stored(dtype, x[i] + y[i]));
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto [m, s] = statistics(&sum[at(r * cols)], cols, layer, kEps);
    mean.push_back(m);
    rstd.push_back(s);
    double g_mean = 0;
    double gx_mean = 0;
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::size_t i = at(r * cols + c);
      const double xhat = (sum[i] - m) * s;
      normed[i] = xhat * w[at(c)] + (layer ? b[at(c)] : 0);
      dw[at(c)] += dy[i] * xhat;
      db[at(c)] += dy[i];
      g_mean += layer ? dy[i] * w[at(c)] / static_cast<double>(cols) : 0;
      gx_mean += dy[i] * w[at(c)] * xhat / static_cast<double>(cols);
    }
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::size_t i = at(r * cols + c);
      dx[i] = s * (dy[i] * w[at(c)] - g_mean - (sum[i] - m) * s * gx_mean) + rest[i];
    }
  }
  const DeviceArray d_x(dtype, x, shift);
  const DeviceArray d_y(dtype, y);
  const DeviceArray d_w(DType::f32, w);
  const DeviceArray d_b(DType::f32, b);
  const DeviceArray d_sum(dtype, x.size());
  const DeviceArray d_normed(dtype, x.size());
  const DeviceArray d_mean(DType::f32, mean.size());
  const DeviceArray d_rstd(DType::f32, rstd.size());
  const NormForward forward{.dtype = dtype,
                            .rows = rows,
                            .cols = cols,
                            .eps = static_cast<float>(kEps),
                            .x = d_x.data(),
                            .addend = d_y.data(),
                            .weight = d_w.floats(),
                            .bias = layer ? d_b.floats() : nullptr,
                            .sum = d_sum.data(),
                            .y = d_normed.data(),
                            .mean = layer ? d_mean.floats() : nullptr,
                            .rstd = d_rstd.floats()};
  layer ? launch_layernorm(nullptr, forward) : launch_rmsnorm(nullptr, forward);
  EXPECT_EQ(d_sum.read(), sum);
  expect_close(d_normed.read(), normed, 4 * tolerance_of(dtype));
  if (layer) expect_close(d_mean.read(), mean, 1e-6);
  expect_close(d_rstd.read(), rstd, 1e-5);

  const DeviceArray d_dy(dtype, dy);
  const DeviceArray d_rest(dtype, rest);
  const DeviceArray d_alone(dtype, x.size());
  const DeviceArray d_again(dtype, x.size());
  const DeviceArray d_dw(DType::f32, w);
  const DeviceArray d_db(DType::f32, b);
  const DeviceBytes workspace(norm_backward_workspace_bytes(rows, cols, layer ? 2 : 1));
  NormBackward backward{.dtype = dtype,
                        .accumulate = true,
                        .rows = rows,
                        .cols = cols,
                        .dy = d_dy.data(),
                        .x = d_sum.data(),
                        .weight = d_w.floats(),
                        .mean = layer ? d_mean.floats() : nullptr,
                        .rstd = d_rstd.floats(),
                        .d_residual = d_rest.data(),
                        .dx = d_alone.data(),
                        .dweight = d_dw.floats(),
                        .dbias = layer ? d_db.floats() : nullptr,
                        .workspace = workspace.at(0)};
  const auto launch = [&] {
    layer ? launch_layernorm_backward(nullptr, backward) : launch_rmsnorm_backward(nullptr, backward);
  };
  launch();
  const DeviceArray d_dw_again(DType::f32, w);
  const DeviceArray d_db_again(DType::f32, b);
  backward.bias = layer ? d_b.floats() : nullptr;
  backward.dx = d_dy.data();  // in place
  backward.dweight = d_dw_again.floats();
  backward.dbias = layer ? d_db_again.floats() : nullptr;
  backward.y = d_again.data();
  launch();
  EXPECT_EQ(d_again.read(), d_normed.read()) << "y again, bit for bit";
  EXPECT_EQ(d_dy.read(), d_alone.read());
  EXPECT_EQ(d_dw_again.read(), d_dw.read());
  EXPECT_EQ(d_db_again.read(), d_db.read());
  expect_close(d_dy.read(), dx, 4 * tolerance_of(dtype));
  expect_close(d_dw.read(), dw, 1e-4);
  if (layer) expect_close(d_db.read(), db, 1e-4);
}

TEST_F(CudaKernels, Norms) {
  for (const auto& [rows, cols] : {std::pair{5, 24}, std::pair{3, 37}, std::pair{900, 768},
                                   std::pair{4, 2560}, std::pair{3, 5000}, std::pair{2, 16384}}) {
    for (const DType dtype : kTypes) {
      for (const bool layer : {true, false}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols) +
                     (layer ? " layernorm " : " rmsnorm ") + std::string(core::name_of(dtype)));
        test_norm(dtype, rows, cols, layer, 0);
        test_norm(dtype, rows, cols, layer, 1);
      }
    }
  }
}

std::vector<std::int32_t> some_tokens(std::int64_t count, int vocab) {
  std::mt19937 engine(7);
  std::uniform_int_distribution<std::int32_t> any(0, vocab - 1);
  std::vector<std::int32_t> tokens(at(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = i % 3 == 0 ? 5 : any(engine);  // 5 is frequent
  return tokens;
}

TEST_F(CudaKernels, Embeddings) {
  constexpr std::int64_t kVocab = 300;
  for (const std::int64_t cols : {264, 13}) {
    for (const DType dtype : kTypes) {
      const EmbeddingShape s{.batch = 3, .seq = 61, .cols = cols};
      const auto tokens = some_tokens(s.rows(), kVocab);
      const Values wte = random_values(dtype, kVocab * cols, 8);
      const Values wpe = random_values(dtype, (s.seq + 2) * cols, 9);
      const Values dx = random_values(dtype, s.rows() * cols, 10);
      Values x, dwte(wte.size()), dwpe(wpe.size());
      for (std::int64_t r = 0; r < s.rows(); ++r) {
        for (std::int64_t c = 0; c < cols; ++c) {
          const std::size_t row = at(tokens[at(r)] * cols + c);
          const std::size_t position = at(r % s.seq * cols + c);
          x.push_back(stored(dtype, wte[row] + wpe[position]));
          dwte[row] += dx[at(r * cols + c)];
          dwpe[position] += dx[at(r * cols + c)];
        }
      }
      const DeviceIds ids(tokens);
      const DeviceArray d_wte(dtype, wte);
      const DeviceArray d_wpe(dtype, wpe);
      const DeviceArray out(dtype, x.size());
      launch_embedding(nullptr, dtype, s, kVocab, ids.data(), d_wte.data(), d_wpe.data(), nullptr,
                       out.data());
      EXPECT_EQ(out.read(), x);
      launch_embedding(nullptr, dtype, s, kVocab, ids.data(), d_wte.data(), nullptr, nullptr, out.data());
      launch_add_positions(nullptr, dtype, s, out.data(), d_wpe.data(), nullptr, out.data());
      EXPECT_EQ(out.read(), x);

      const DeviceArray d_dx(dtype, dx);
      const DeviceArray d_dwte(DType::f32, wte.size());
      const DeviceArray d_dwpe(DType::f32, wpe.size());
      const DeviceBytes workspace(embedding_backward_workspace_bytes(s.rows(), kVocab));
      for (const bool accumulate : {false, true}) {
        launch_embedding_backward(nullptr, dtype, s, kVocab, ids.data(), d_dx.data(), d_dwte.floats(),
                                  accumulate, workspace.at(0));
        launch_add_positions_backward(nullptr, dtype, s, s.seq + 2, d_dx.data(), d_dwpe.floats(), accumulate);
        const double times = accumulate ? 2 : 1;
        for (double& value : dwte) value *= times;
        for (double& value : dwpe) value *= times;
        expect_close(d_dwte.read(), dwte, 1e-5);
        expect_close(d_dwpe.read(), dwpe, 1e-5);
      }
    }
  }
}

TEST_F(CudaKernels, CrossEntropy) {
  constexpr double kScale = 0.125;
  for (const auto& [cols, valid] :
       {std::pair{40, 37}, std::pair{13, 13}, std::pair{9000, 8999}, std::pair{50304, 50257},
        std::pair{65544, 65537}, std::pair{128256, 128256}, std::pair{151936, 151900},
        std::pair{200000, 199999}}) {
    for (const DType dtype : kTypes) {
      SCOPED_TRACE(std::string(core::name_of(dtype)) + ", rows of " + std::to_string(cols));
      const LossShape s{.rows = 7, .cols = cols, .valid = valid};
      const Values x = random_values(dtype, s.rows * s.cols, 11, 3);
      auto targets = some_tokens(s.rows, valid);
      targets[2] = -1;
      Values losses, lses, gradient(x.size());
      for (std::int64_t r = 0; r < s.rows; ++r) {
        double total = 0;
        for (std::int64_t v = 0; v < valid; ++v) total += std::exp(x[at(r * cols + v)]);
        lses.push_back(std::log(total));
        const std::int32_t target = targets[at(r)];
        losses.push_back(target < 0 ? 0 : lses.back() - x[at(r * cols + target)]);
        for (std::int64_t v = 0; target >= 0 && v < valid; ++v) {
          gradient[at(r * cols + v)] = kScale * (std::exp(x[at(r * cols + v)] - lses.back()) - (v == target));
        }
      }
      const DeviceArray logits(dtype, x);
      const DeviceIds ids(targets);
      const DeviceArray d_losses(DType::f32, losses.size());
      const DeviceArray d_lses(DType::f32, losses.size());
      launch_cross_entropy(nullptr, dtype, s, logits.data(), ids.data(), d_losses.floats(), d_lses.floats());
      expect_close(d_losses.read(), losses, 1e-5);
      expect_close(d_lses.read(), lses, 1e-5);
      const DeviceArray both(dtype, x);
      const DeviceArray both_losses(DType::f32, losses.size());
      const DeviceArray both_lses(DType::f32, losses.size());
      launch_cross_entropy_with_gradient(nullptr, dtype, s, both.data(), ids.data(),
                                         static_cast<float>(kScale), both_losses.floats(), both_lses.floats(),
                                         both.data());
      launch_cross_entropy_backward(nullptr, dtype, s, logits.data(), ids.data(), d_lses.floats(),
                                    static_cast<float>(kScale), logits.data());
      expect_close(logits.read(), gradient, tolerance_of(dtype), 0.02);
      const Values one = both.read();
      const Values two = logits.read();
      const auto differs = std::ranges::mismatch(one, two);
      EXPECT_EQ(differs.in1, one.end())
          << "at " << differs.in1 - one.begin() << ": " << *differs.in1 << ", " << *differs.in2;
      EXPECT_EQ(both_losses.read(), d_losses.read());
      EXPECT_EQ(both_lses.read(), d_lses.read());
      const DeviceArray mean(DType::f32, Values{4});
      launch_mean(nullptr, s.rows, d_losses.floats(), 0.5, true, mean.floats());
      double expected = 4;
      for (const double loss : losses) expected += 0.5 * loss;
      expect_close(mean.read(), Values{expected}, 1e-5);
    }
  }
}

}  // namespace
}  // namespace rooflm::tests
