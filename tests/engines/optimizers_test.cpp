// Optimizers against their formulas in plain loops, and engines against each other.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "compile/recipe.h"
#include "core/error.h"
#include "program/ops.h"
#include "tests/compile/passes/recipes.h"
#include "tests/engines/step_runner.h"

namespace rooflm::optimizers {
namespace {

using compile::EngineKind;
using compile::StepOptions;
using passes::AttentionKind;
using passes::OptimizerKind;
using passes::StateKind;
using tests::StepRunner;

constexpr std::int64_t kBatch = 2, kSeq = 13;
constexpr double kRate = 0.01;

StepOptions options_of(EngineKind engine, core::DType dtype, OptimizerKind kind) {
  return {.engine = engine,
          .attention = compile::default_attention(engine),
          .dtype = dtype,
          .optimizer = {.kind = kind, .clip_norm = 0}};
}

using Values = std::vector<double>;

struct Matrix {
  std::size_t rows = 0, columns = 0;
  Values values{};
  [[nodiscard]] double at(std::size_t r, std::size_t c) const { return values[r * columns + c]; }
};

Matrix transposed(const Matrix& a) {
  Matrix t{a.columns, a.rows, Values(a.values.size())};
  for (std::size_t r = 0; r < a.rows; ++r)
    for (std::size_t c = 0; c < a.columns; ++c) t.values[c * a.rows + r] = a.at(r, c);
  return t;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.columns, Values(a.rows * b.columns)};
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t k = 0; k < a.columns; ++k)
      for (std::size_t j = 0; j < b.columns; ++j) c.values[i * b.columns + j] += a.at(i, k) * b.at(k, j);
  return c;
}

double norm_of(const Matrix& a) {
  double square = 0;
  for (const double x : a.values) square += x * x;
  return std::sqrt(square);
}

Matrix scaled(Matrix a, double factor) {
  for (double& x : a.values) x *= factor;
  return a;
}

/// Muon's direction, written with the wide side last.
Matrix orthogonal(const Matrix& d) {
  if (d.rows > d.columns) return transposed(orthogonal(transposed(d)));
  Matrix x = scaled(d, 1 / (norm_of(d) + 1e-7));
  for (int i = 0; i < 5; ++i) {
    const Matrix a = product(x, transposed(x));
    const Matrix square = product(a, a);
    Matrix b = a;
    for (std::size_t k = 0; k < b.values.size(); ++k)
      b.values[k] = -4.7750 * a.values[k] + 2.0315 * square.values[k];
    const Matrix more = product(b, x);
    for (std::size_t k = 0; k < x.values.size(); ++k) x.values[k] = 3.4445 * x.values[k] + more.values[k];
  }
  return x;
}

/// (a / |a| + 1e-6 I)^-1/4 of a symmetric matrix through its eigenvectors, found by Jacobi's rotations.
Matrix inverse_root(const Matrix& symmetric) {
  const std::size_t n = symmetric.rows;
  Matrix a = scaled(symmetric, 1 / norm_of(symmetric));
  Matrix q{n, n, Values(n * n)};
  for (std::size_t i = 0; i < n; ++i) q.values[i * n + i] = 1;
  const auto rotate = [n](double& x, double& y, double c, double s) {
    const double before = x;
    x = c * x - s * y;
    y = s * before + c * y;
  };
  for (int sweep = 0; sweep < 30; ++sweep) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i + 1; j < n; ++j) {
        if (std::abs(a.at(i, j)) < 1e-300) continue;
        const double angle = 0.5 * std::atan2(2 * a.at(i, j), a.at(j, j) - a.at(i, i));
        const double c = std::cos(angle), s = std::sin(angle);
        for (std::size_t k = 0; k < n; ++k) rotate(a.values[k * n + i], a.values[k * n + j], c, s);
        for (std::size_t k = 0; k < n; ++k) rotate(a.values[i * n + k], a.values[j * n + k], c, s);
        for (std::size_t k = 0; k < n; ++k) rotate(q.values[k * n + i], q.values[k * n + j], c, s);
      }
    }
  }
  Matrix root = q;
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t c = 0; c < n; ++c)
      root.values[r * n + c] *= std::pow(std::max(a.at(c, c), 0.0) + 1e-6, -0.25);
  return product(root, transposed(q));
}

/// The state of a plain optimizer of one weight.
struct Reference {
  OptimizerKind kind;
  passes::OptimizerOptions options;
  Matrix m{}, v{}, left{}, right{};

  static void average(Matrix& m, const Matrix& g, double beta) {
    if (m.values.empty()) m = scaled(g, 0);
    for (std::size_t i = 0; i < g.values.size(); ++i)
      m.values[i] = beta * m.values[i] + (1 - beta) * g.values[i];
  }

  [[nodiscard]] Matrix direction(const Matrix& g, bool is_matrix, int step) {
    const double rows = static_cast<double>(g.rows), columns = static_cast<double>(g.columns);
    if (kind == OptimizerKind::lion) {
      Matrix u = m.values.empty() ? scaled(g, 0) : m;
      average(u, g, options.beta1);
      for (double& x : u.values) x = x > 0 ? 1 : x < 0 ? -1 : 0;
      average(m, g, options.beta2);
      return u;
    }
    if (kind == OptimizerKind::muon && is_matrix) {
      average(m, g, options.momentum);
      Matrix d = m;
      average(d, g, options.momentum);  // Nesterov's step
      return scaled(orthogonal(d), 0.2 * std::sqrt(std::max(rows, columns)));
    }
    if (kind == OptimizerKind::shampoo && is_matrix) {
      average(m, g, options.beta1);
      average(left, product(g, transposed(g)), options.beta2);
      average(right, product(transposed(g), g), options.beta2);
      const Matrix x = product(product(inverse_root(left), m), inverse_root(right));
      return scaled(x, 0.2 * std::sqrt(rows * columns) / norm_of(x));
    }
    average(m, g, options.beta1);
    Matrix square = g;
    for (double& x : square.values) x *= x;
    average(v, square, options.beta2);
    Matrix d = m;
    for (std::size_t i = 0; i < d.values.size(); ++i) {
      const double size = std::sqrt(v.values[i] / (1 - std::pow(options.beta2, step))) + options.eps;
      d.values[i] = m.values[i] / (1 - std::pow(options.beta1, step)) / size;
    }
    return d;
  }

  void update(Matrix& weight, const Matrix& g, bool is_matrix, bool decays, int step) {
    const Matrix d = direction(g, is_matrix, step);
    const double decay = decays ? options.weight_decay : 0;
    for (std::size_t i = 0; i < d.values.size(); ++i)
      weight.values[i] -= kRate * (d.values[i] + decay * weight.values[i]);
  }
};

/// Gradients at `weights`: an SGD step without decay moves weights by them.
StepRunner::Weights gradients_at(const model::ModelConfig& config, const StepRunner::Weights& weights,
                                 const tests::Batch& batch) {
  StepOptions options = options_of(EngineKind::eager, core::DType::f64, OptimizerKind::sgd);
  options.optimizer.weight_decay = 0;
  StepRunner runner(config, kBatch, kSeq, options, weights, 1);
  runner.step(batch, 1);
  StepRunner::Weights gradients;
  for (const auto& [name, values] : weights) {
    const Values after = runner.weight(name);
    Values& g = gradients[name];
    for (std::size_t i = 0; i < values.size(); ++i) g.push_back(values[i] - after[i]);
  }
  return gradients;
}

class Optimizers : public testing::TestWithParam<OptimizerKind> {};

TEST_P(Optimizers, AreTheirFormulas) {
  const model::ModelConfig config = tests::small_config(model::Arch::llama);
  StepRunner::Weights weights = tests::initial_weights(config);
  const StepOptions options = options_of(EngineKind::eager, core::DType::f64, GetParam());
  StepRunner runner(config, kBatch, kSeq, options, weights, 1);
  std::map<std::string, Reference> references;
  for (int step = 1; step <= 3; ++step) {
    const tests::Batch batch =
        tests::random_batch(kBatch * kSeq, config.vocab, static_cast<std::uint64_t>(step));
    const StepRunner::Weights gradients = gradients_at(config, weights, batch);
    runner.step(batch, kRate);
    for (const model::Parameter& p : model::parameters(config)) {
      const auto columns = static_cast<std::size_t>(p.shape[-1]);
      const auto rows = static_cast<std::size_t>(p.shape.numel()) / columns;
      Matrix weight{rows, columns, weights.at(p.name)};
      const bool is_matrix = p.shape.rank() == 2 && p.name.starts_with("h.");
      auto& reference =
          references.try_emplace(p.name, Reference{GetParam(), options.optimizer}).first->second;
      reference.update(weight, {rows, columns, gradients.at(p.name)}, is_matrix, p.shape.rank() == 2, step);
      const Values after = runner.weight(p.name);
      for (std::size_t i = 0; i < after.size(); ++i)
        ASSERT_NEAR(after[i], weight.values[i], 1e-5 * kRate) << p.name << " " << i << " after step " << step;
      weights[p.name] = after;
    }
  }
}

/// Matrices of one shape together, fp32 and 16 bits.
TEST_P(Optimizers, EnginesAgree) {
  for (const model::Arch& arch : {model::Arch::gpt2, model::Arch::llama}) {
    const model::ModelConfig config = tests::small_config(arch);
    const StepRunner::Weights weights = tests::initial_weights(config);
    const auto losses = [&](EngineKind engine, core::DType dtype) {
      StepOptions options = options_of(engine, dtype, GetParam());
      options.optimizer.clip_norm = 1;
      options.micro_batches = 2;
      StepRunner runner(config, kBatch, kSeq, options, weights, 1);
      const tests::Batch batch = tests::random_batch(2 * kBatch * kSeq, config.vocab, 1);
      Values all;
      for (int step = 0; step < 6; ++step) all.push_back(runner.step(batch, kRate));
      return all;
    };
    const Values exact = losses(EngineKind::eager, core::DType::f64);
    EXPECT_LT(exact.back(), exact.front() - 0.1) << "the model does not learn";
    for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
      const Values single = losses(engine, core::DType::f32);
      const Values half = losses(engine, core::DType::bf16);
      for (std::size_t i = 0; i < exact.size(); ++i) {
        EXPECT_NEAR(single[i], exact[i], 2e-4 * exact[i]) << name_of(engine) << " step " << i;
        EXPECT_NEAR(half[i], exact[i], 3e-2 * exact[i]) << name_of(engine) << " step " << i;
      }
    }
  }
}

std::string name_of_test(const testing::TestParamInfo<OptimizerKind>& info) {
  return std::string(name_of(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, Optimizers,
                         testing::Values(OptimizerKind::adamw, OptimizerKind::lion, OptimizerKind::muon,
                                         OptimizerKind::shampoo),
                         name_of_test);

program::Cost cost_of_updates(const program::Program& program) {
  program::Cost cost;
  for (const program::Op& op : program.ops)
    if (op.phase == program::Phase::optimizer) cost += program::cost_of(program, op);
  return cost;
}

/// 5 times X X^T, A A and (aI + bA + cA^2) X for each matrix, whether or not they are computed together; of
/// long ones 2 times X X^T and F X, and 14 products of squares.
TEST(OptimizerCosts, MuonsMatmulsAreCounted) {
  const model::ModelConfig config = tests::small_config(model::Arch::gpt2);
  std::int64_t flop = 0;
  for (const model::Parameter& p : model::parameters(config)) {
    if (p.shape.rank() != 2 || !p.name.starts_with("h.")) continue;
    const std::int64_t m = std::min(p.shape[0], p.shape[1]), n = std::max(p.shape[0], p.shape[1]);
    flop += 2 * n > 3 * m ? 8 * m * m * n + 28 * m * m * m : 20 * m * m * n + 10 * m * m * m;
  }
  program::Cost costs[2];
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const StepOptions options = options_of(engine, core::DType::f32, OptimizerKind::muon);
    const program::Cost cost = cost_of_updates(tests::small_step(model::Arch::gpt2, options));
    EXPECT_EQ(cost.matmul_flop, flop) << name_of(engine);
    costs[engine == EngineKind::fused ? 1 : 0] = cost;
  }
  EXPECT_EQ(costs[0].bytes_written, costs[1].bytes_written);
  // Updates that are one op read the learning rate once.
  EXPECT_NEAR(static_cast<double>(costs[0].bytes_read), static_cast<double>(costs[1].bytes_read), 1000);
}

/// The gradient of one token has rank one: what rounding to 16 bits adds to its Gram matrix must not grow.
TEST(Optimizers, MuonsGramMatricesStayBoundedIn16Bits) {
  model::ModelConfig config = tests::small_config(model::Arch::llama);
  config.d_ff = 8 * config.d_model;
  const StepRunner::Weights weights = tests::initial_weights(config);
  StepOptions options = options_of(EngineKind::fused, core::DType::bf16, OptimizerKind::muon);
  options.optimizer.weight_decay = 0;
  StepRunner runner(config, 1, 1, options, weights, 1);
  runner.step(tests::random_batch(1, config.vocab, 1), kRate);
  for (const model::Parameter& p : model::parameters(config)) {
    if (p.shape.rank() != 2 || !p.name.starts_with("h.")) continue;
    const std::int64_t side = std::min(p.shape[0], p.shape[1]), length = std::max(p.shape[0], p.shape[1]);
    const Values& before = weights.at(p.name);
    Values change = runner.weight(p.name);
    for (std::size_t i = 0; i < change.size(); ++i) change[i] -= before[i];
    const double size = norm_of({static_cast<std::size_t>(side), static_cast<std::size_t>(length), change}) /
                        (kRate * 0.2 * std::sqrt(static_cast<double>(length)));
    EXPECT_LT(size, 2) << p.name << " " << p.shape.str();
  }
}

/// Bytes of optimizer state per parameter, and how far the loss is from that with fp32 states.
TEST(NarrowStates, AreSmallAndLearnAlike) {
  const model::ModelConfig config = tests::small_config(model::Arch::llama);
  const StepRunner::Weights weights = tests::initial_weights(config);
  const auto parameters = static_cast<double>([&] {
    std::int64_t sum = 0;
    for (const auto& p : model::parameters(config)) sum += p.shape.numel();
    return sum;
  }());
  const auto run = [&](EngineKind engine, StateKind states, double& bytes) {
    StepOptions options = options_of(engine, core::DType::f32, OptimizerKind::adamw);
    options.optimizer.states = states;
    StepRunner runner(config, kBatch, kSeq, options, weights, 1);
    bytes = 0;
    for (const program::Tensor& tensor : runner.engine().program().tensors)
      if (tensor.role == program::Role::optimizer_state) bytes += static_cast<double>(tensor.bytes());
    bytes /= parameters;
    const tests::Batch batch = tests::random_batch(kBatch * kSeq, config.vocab, 1);
    Values losses;
    for (int step = 0; step < 20; ++step) losses.push_back(runner.step(batch, kRate));
    return losses;
  };
  double bytes = 0;
  const Values exact = run(EngineKind::eager, StateKind::fp32, bytes);
  EXPECT_EQ(bytes, 8);
  for (const EngineKind engine : {EngineKind::eager, EngineKind::fused}) {
    const Values half = run(engine, StateKind::bf16, bytes);
    EXPECT_EQ(bytes, 4);
    const Values eight = run(engine, StateKind::eight_bit, bytes);
    EXPECT_NEAR(bytes, 2 + 8.0 / 256, 0.03);
    EXPECT_EQ(run(engine, StateKind::eight_bit, bytes), eight) << "the same bits again";
    for (std::size_t i = 0; i < exact.size(); ++i) {
      EXPECT_NEAR(half[i], exact[i], 0.02 * exact[i] + 0.01) << "bf16, step " << i;
      EXPECT_NEAR(eight[i], exact[i], 0.05 * exact[i] + 0.02) << "8bit, step " << i;
    }
    EXPECT_NE(half, exact);
    EXPECT_NE(eight, exact);
  }
}

TEST(OptimizerOptions, AreRefusedWhereTheyCannotBe) {
  const auto step = [](const StepOptions& options) { return tests::small_step(model::Arch::gpt2, options); };
  StepOptions options = options_of(EngineKind::fused, core::DType::f16, OptimizerKind::muon);
  EXPECT_THROW(step(options), core::Unavailable);
  options = options_of(EngineKind::fused, core::DType::f32, OptimizerKind::lion);
  options.optimizer.states = StateKind::eight_bit;
  EXPECT_THROW(step(options), core::UsageError);
  options = options_of(EngineKind::fused, core::DType::f32, OptimizerKind::shampoo);
  options.sharding = {.tensor = 2};
  EXPECT_THROW(step(options), core::Unavailable);
}

}  // namespace
}  // namespace rooflm::optimizers
