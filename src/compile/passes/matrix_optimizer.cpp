// Optimizers that see a weight as a matrix: Muon and Shampoo, as matmuls and a few elementwise ops.
#include "compile/passes/matrix_optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "compile/passes/words.h"
#include "core/scope.h"

namespace rooflm::passes {
namespace {

using program::Builder;

/// Of AdamW's updates, about.
constexpr double kUpdateSize = 0.2;

constexpr int kMuonIterations = 5;

/// Iterations of each round. In units of side^3 and with n = length / side, rounds of one iteration take
/// 20 n + 10 FLOPs in all, as each reads x in two matmuls; rounds of three and two take 8 n + 28. One round
/// of five would take fewer, but in 16 bits small eigenvalues of A turn negative and grow.
std::vector<int> muon_rounds(std::int64_t side, std::int64_t length) {
  if (2 * length > 3 * side) return {3, 2};
  return std::vector<int>(kMuonIterations, 1);
}

/// Writes the updates of `count` weights, which are `batch` matrices [r, c] together.
class MatrixWriter {
 public:
  MatrixWriter(Builder& builder, const std::vector<WeightGradient>& weights, TensorId hyper, TensorId norm,
               const OptimizerOptions& options)
      : builder_(&builder), weights_(&weights), hyper_(hyper), norm_(norm), options_(options) {
    const Shape& shape = program().shape(weights.front().weight);
    rows_ = shape[-2];
    columns_ = shape[-1];
    matrices_ = shape.numel() / (rows_ * columns_);
    batch_ = matrices_ * static_cast<std::int64_t>(weights.size());
  }

  void muon() {
    constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
    const bool is_tall = rows_ > columns_;
    const std::int64_t side = std::min(rows_, columns_), length = std::max(rows_, columns_);
    const Product square{side, side, side};
    TensorId x = normalized(averaged_gradients(options_.momentum, true), 1, 1e-7);
    int left = kMuonIterations;
    for (const int iterations : muon_rounds(side, length)) {
      TensorId gram = is_tall ? matmul(x, x, {side, side, rows_, true, false})
                              : matmul(x, x, {side, side, columns_, false, true});
      TensorId factor = program::kNone;
      for (int i = 0; i < iterations; ++i) {
        const double size = --left > 0 ? 1 : kUpdateSize * std::sqrt(static_cast<double>(length));
        const TensorId step = polynomial({gram, matmul(gram, gram, square)}, size * kA, size * kB, size * kC);
        factor = factor == program::kNone ? step : matmul(step, factor, square);
        if (i + 1 < iterations) gram = matmul(matmul(step, gram, square), step, square);
      }
      x = is_tall ? matmul(x, factor, {rows_, side, side}) : matmul(factor, x, {side, columns_, side});
    }
    update(x);
  }

  void shampoo() {
    const TensorId left = inverse_root(averaged_squares("left", rows_, columns_, false));
    const TensorId right = inverse_root(averaged_squares("right", columns_, rows_, true));
    const TensorId d = averaged_gradients(options_.beta1, false);
    const TensorId x = matmul(matmul(left, d, {rows_, columns_, rows_}), right, {rows_, columns_, columns_});
    const double size = kUpdateSize * std::sqrt(static_cast<double>(rows_) * static_cast<double>(columns_));
    update(normalized(x, size, 1e-12));
  }

 private:
  using Product = ops::Product;

  [[nodiscard]] Program& program() const { return builder_->program(); }

  [[nodiscard]] static Attributes attributes(std::int64_t batch, Product product) {
    product.batch = batch;
    return ops::matmul_attributes(product);
  }
  TensorId matmul(TensorId a, TensorId b, const Product& product) {
    return keep(builder_->op(ops::kMatmul, {a, b}, attributes(batch_, product), "product",
                             {{batch_, product.m, product.n}}));
  }
  TensorId polynomial(std::vector<TensorId> operands, double a, double b, double c) {
    const Attributes attrs{{"a", a}, {"b", b}, {"c", c}};
    return keep(builder_->op(ops::kMatrixPolynomial, std::move(operands), attrs, "polynomial"));
  }
  TensorId normalized(TensorId x, double size, double eps) {
    return keep(builder_->op(ops::kNormalize, {x}, {{"size", size}, {"eps", eps}}, "normalized"));
  }
  /// Shampoo's roots need fp32; Muon's iteration does in 16 bits.
  TensorId keep(TensorId id) {
    program().tensor(id).full_precision = options_.kind == OptimizerKind::shampoo;
    return id;
  }

  /// Whoever has the weight has all of it.
  TensorId add_state(const std::string& name, TensorId weight, const Shape& shape) {
    std::vector<program::Shard> shards = program().tensor(weight).shards;
    for (program::Shard& shard : shards) shard.whole = shape;
    return program().add_tensor({.name = name + "." + program().tensor(weight).name,
                                 .shape = shape,
                                 .role = Role::optimizer_state,
                                 .full_precision = true,
                                 .shards = std::move(shards)});
  }

  /// Moving averages m of `pairs`, one after another, or Nesterov's step ahead of them.
  TensorId averaged(const std::vector<std::pair<TensorId, TensorId>>& pairs, Attributes attrs) {
    attrs.set("max_norm", options_.clip_norm);
    std::vector<TensorId> inputs{hyper_, norm_};
    program::Op op = builder_->make(ops::kMomentum, {}, std::move(attrs));
    for (const auto& [value, average] : pairs) inputs.insert(inputs.end(), {value, average});
    op.inputs = std::move(inputs);
    program::Tensor all = ops::kMomentum.infer(program(), op).front();
    all.name = "direction";
    std::vector<TensorId> outputs{program().add_tensor(std::move(all))};
    for (const auto& [value, average] : pairs) outputs.push_back(average);
    const TensorId stacked = keep(outputs.front());
    program().append_to(std::move(op), std::move(outputs));
    return stacked;
  }

  TensorId averaged_gradients(double beta, bool nesterov) {
    std::vector<std::pair<TensorId, TensorId>> pairs;
    for (const auto& [weight, gradient] : *weights_)
      pairs.emplace_back(gradient, add_state("m", weight, program().shape(weight)));
    return averaged(pairs, {{"beta", beta}, {"nesterov", nesterov}, {"squared", false}});
  }

  /// The average of g g^T [side, side], or of g^T g.
  TensorId averaged_squares(const std::string& name, std::int64_t side, std::int64_t inner, bool trans) {
    std::vector<std::pair<TensorId, TensorId>> pairs;
    const Shape shape = matrices_ > 1 ? Shape{matrices_, side, side} : Shape{side, side};
    for (const auto& [weight, gradient] : *weights_) {
      const TensorId square =
          keep(builder_->op(ops::kMatmul, {gradient, gradient},
                            attributes(matrices_, {side, side, inner, trans, !trans}), "square", {shape}));
      pairs.emplace_back(square, add_state(name, weight, shape));
    }
    return averaged(pairs, {{"beta", options_.beta2}, {"nesterov", false}, {"squared", true}});
  }

  /// x^-1/4 of symmetric matrices, but for a factor.
  TensorId inverse_root(TensorId x) {
    constexpr int kIterations = 20;
    constexpr double kStart = 2.5, kDamping = 1e-6;
    const Shape shape = program().shape(x);
    const Product square{shape[-1], shape[-1], shape[-1]};
    TensorId m = polynomial({normalized(x, 1, 1e-30)}, kStart * kDamping, kStart, 0);
    TensorId root = program::kNone;
    for (int i = 0; i < kIterations; ++i) {
      const TensorId t = polynomial({m}, 1.25, -0.25, 0);
      root = root == program::kNone ? t : matmul(root, t, square);
      if (i + 1 == kIterations) break;
      const TensorId t2 = matmul(t, t, square);
      m = matmul(matmul(t2, t2, square), m, square);
    }
    return root;
  }

  /// p -= lr (x + weight_decay p); each weight has its part of x.
  void update(TensorId x) {
    const Attributes attrs{{"weight_decay", options_.weight_decay}, {"max_norm", 0.0}, {"copies", false}};
    std::int64_t offset = 0;
    for (const auto& [weight, gradient] : *weights_) {
      program::Op op = builder_->make(ops::kSgd, {hyper_, program::kNone, weight, x}, attrs);
      if (weights_->size() > 1) op.input_offset = {0, 0, 0, offset};
      program().append_to(std::move(op), {weight});
      offset += program().shape(weight).numel();
    }
  }

  Builder* builder_;
  const std::vector<WeightGradient>* weights_;
  TensorId hyper_, norm_;
  OptimizerOptions options_;
  std::int64_t rows_ = 0, columns_ = 0, matrices_ = 1, batch_ = 1;
};

}  // namespace

std::vector<bool> layer_matrices(const Program& program) {
  std::vector<bool> is_matrix(program.tensors.size(), false);
  std::map<TensorId, TensorId> weight_of;  // by what was gathered of it
  for (const program::Op& op : program.ops) {
    if (op.is(ops::kAllGather))
      for (std::size_t i = 0; i < op.inputs.size(); ++i) weight_of[op.outputs[i]] = op.inputs[i];
    const bool multiplies = op.is(ops::kMatmul) || op.is(ops::kGroupedMatmul);
    if (!multiplies || op.phase != program::Phase::forward || !core::Scope(op.scope).layer()) continue;
    const auto gathered = weight_of.find(op.inputs[1]);
    const TensorId weight = gathered == weight_of.end() ? op.inputs[1] : gathered->second;
    if (program.tensor(weight).role == Role::weight) is_matrix[static_cast<std::size_t>(weight)] = true;
  }
  return is_matrix;
}

void append_matrix_updates(Builder& builder, const std::vector<WeightGradient>& weights, TensorId hyper,
                           TensorId norm, const OptimizerOptions& options) {
  MatrixWriter writer(builder, weights, hyper, norm, options);
  if (options.kind == OptimizerKind::muon) return writer.muon();
  writer.shampoo();
}

double matrix_update_flop(const Shape& weight, const OptimizerOptions& options) {
  Program program;
  Builder builder(program, program::Phase::optimizer);
  const TensorId hyper = program.add_tensor({.name = "hyper", .shape = {4}, .role = Role::input});
  const WeightGradient pair{
      .weight = program.add_tensor({.name = "w", .shape = weight, .role = Role::weight}),
      .gradient = program.add_tensor({.name = "d_w", .shape = weight, .role = Role::gradient})};
  append_matrix_updates(builder, {pair}, hyper, program::kNone, options);
  double flop = 0;
  for (const program::Op& op : program.ops)
    flop += static_cast<double>(program::cost_of(program, op).matmul_flop);
  return flop;
}

}  // namespace rooflm::passes
