// GPTQ: rounding that the columns that follow make up for.
#include "train/gptq.h"

#include <fmt/format.h>

#include <Eigen/Cholesky>
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "compile/passes/pack_weights.h"
#include "core/error.h"
#include "core/packed_weights.h"
#include "core/stop_signals.h"
#include "model/forward.h"
#include "program/ops.h"

namespace rooflm::train {
namespace {

namespace ops = program::ops;
using core::DType;
using program::Op;
using program::Program;
using program::TensorId;

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr const char* kGram = ".gram";

/// U with H^-1 = U^T U, U upper triangular, of H = gram with a larger diagonal.
Matrix inverse_factor(std::int64_t width, std::span<const float> gram) {
  constexpr double kDamping = 0.01;
  Matrix h = Eigen::Map<const Floats>(gram.data(), width, width).cast<double>();
  const double mean = h.diagonal().mean();
  for (std::int64_t i = 0; i < width; ++i) h(i, i) += mean > 0 ? kDamping * mean : 1.0;
  const Matrix inverse = h.llt().solve(Matrix::Identity(width, width));
  return inverse.llt().matrixU();
}

/// Writes codes and scales of a matrix.
class Codes {
 public:
  Codes(DType dtype, std::int64_t rows, std::int64_t width)
      : bytes_(static_cast<std::size_t>(core::packed_bytes(dtype, rows * width, width))),
        matrix_{dtype, rows, width, bytes_.data()} {}

  void put(std::int64_t at, int code) {
    if (matrix_.dtype == DType::int8) {
      bytes_[static_cast<std::size_t>(at)] = static_cast<std::byte>(code + 128);
      return;
    }
    std::byte& two = bytes_[static_cast<std::size_t>(at / 2)];
    const auto four = static_cast<std::byte>(code + 8);
    two = at % 2 == 0 ? (two & std::byte{0xf0}) | four : (two & std::byte{0x0f}) | four << 4U;
  }
  void put_scale(std::int64_t group, float scale) {
    std::memcpy(bytes_.data() + matrix_.code_bytes() + group * 4, &scale, sizeof scale);
  }
  [[nodiscard]] std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
  core::PackedMatrix matrix_;
};

/// The forward pass up to the last matmul of a layer, with x^T x of the inputs of its matmuls as results.
Program with_grams(Program forward, std::int64_t layer) {
  const std::string prefix = fmt::format("h.{}.", layer);
  std::vector<Op> all;
  std::size_t end = 0;
  for (const Op& op : std::exchange(forward.ops, {})) {
    all.push_back(op);
    if (!op.is(ops::kMatmul)) continue;
    const program::Tensor& weight = forward.tensor(op.inputs[1]);
    if (!weight.name.starts_with(prefix) || !passes::has_format(weight)) continue;
    const std::int64_t k = op.attrs.integer("k");
    Op gram;
    gram.def = &ops::kMatmul;
    gram.inputs = {op.inputs[0], op.inputs[0]};
    gram.attrs = ops::matmul_attributes(
        {.m = k, .n = k, .k = op.attrs.integer("m"), .trans_a = true, .accumulate = true});
    gram.scope = op.scope + "/gram";
    gram.outputs = {forward.add_tensor({.name = weight.name + kGram,
                                        .shape = {k, k},
                                        .role = program::Role::result,
                                        .full_precision = true})};
    all.push_back(std::move(gram));
    end = all.size();
  }
  all.resize(end);
  forward.ops = std::move(all);
  return forward;
}

}  // namespace

std::vector<std::byte> round_by_gptq(DType dtype, std::int64_t rows, std::int64_t width,
                                     std::span<float> weight, std::span<const float> gram) {
  constexpr std::int64_t kBlock = 128;  // columns whose errors reach later ones in one product
  const Matrix factor = inverse_factor(width, gram);
  const std::int64_t group = core::packed_group(dtype, width);
  Matrix w = Eigen::Map<const Floats>(weight.data(), rows, width).cast<double>();
  Codes codes(dtype, rows, width);
  Floats scales(rows, width / group);
  Matrix errors(rows, kBlock);
  for (std::int64_t first = 0; first < width; first += kBlock) {
    const std::int64_t count = std::min(kBlock, width - first);
    for (std::int64_t i = first; i < first + count; ++i) {
      if (i % group == 0) {
        for (std::int64_t r = 0; r < rows; ++r) {
          const auto largest = static_cast<float>(w.row(r).segment(i, group).cwiseAbs().maxCoeff());
          scales(r, i / group) = core::integer_scale(dtype, largest);
          codes.put_scale(r * (width / group) + i / group, scales(r, i / group));
        }
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        const float scale = scales(r, i / group);
        const int code = core::integer_code(dtype, static_cast<float>(w(r, i)), scale);
        codes.put(r * width + i, code);
        const float value = scale * static_cast<float>(code);
        weight[static_cast<std::size_t>(r * width + i)] = value;
        errors(r, i - first) = (w(r, i) - static_cast<double>(value)) / factor(i, i);
      }
      const std::int64_t left = first + count - i - 1;
      w.middleCols(i + 1, left).noalias() -= errors.col(i - first) * factor.row(i).segment(i + 1, left);
    }
    const std::int64_t rest = width - first - count;
    w.rightCols(rest).noalias() -= errors.leftCols(count) * factor.block(first, first + count, count, rest);
  }
  return std::move(codes).take();
}

model::PackedWeights quantize_by_gptq(Session& session, DType dtype, const EvalBatches& batches,
                                      std::uint64_t samples,
                                      const std::function<void(std::int64_t)>& on_layer) {
  model::PackedWeights packed;
  Batch batch;
  batches.read(0, batch);
  const auto texts = static_cast<std::int64_t>(batch.tokens.size());
  for (std::int64_t layer = 0; layer < session.config().layers; ++layer) {
    const Program forward =
        compile::inference_step(model::forward(session.config(), 1, texts), session.step_options());
    const auto engine = session.make_engine(with_grams(forward, layer));
    for (std::uint64_t i = 0; i < samples; ++i) {
      if (core::StopSignals::received() != 0) throw core::Stopped{core::StopSignals::received()};
      batches.read(i, batch);
      engine->io().write<std::int32_t>("tokens", batch.tokens);
      engine->run();
    }
    for (const program::Tensor& tensor : engine->program().tensors) {
      if (!tensor.name.ends_with(kGram)) continue;
      const std::string name = tensor.name.substr(0, tensor.name.size() - std::string_view(kGram).size());
      const std::vector<float> gram = engine->io().read<float>(tensor.name);
      if (!std::ranges::all_of(gram, [](float x) { return std::isfinite(x); }))
        throw core::InputError(fmt::format("{}: its inputs in the calibration text are not finite", name));
      std::vector<float> weight = session.weight(name);
      const std::int64_t width = tensor.shape[0];
      packed[name] =
          round_by_gptq(dtype, static_cast<std::int64_t>(weight.size()) / width, width, weight, gram);
      session.write_whole(name, weight);
    }
    on_layer(layer + 1);
  }
  return packed;
}

}  // namespace rooflm::train
