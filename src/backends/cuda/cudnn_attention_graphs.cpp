// The operation graphs that cuDNN's attention engines recognise.
#include "backends/cuda/cudnn_attention_graphs.h"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace rooflm::backends::cuda {
namespace {

constexpr std::int64_t kRowAxis = 2;
constexpr std::int64_t kColumnAxis = 3;
/// Gradients of sequences that are no multiple of this are wrong before 9.16 without their lengths.
constexpr std::int64_t kWholeTile = 128;

/// Adds the operands of a part to a graph. D is contiguous; a transposed operand has the same memory with
/// other strides.
class Operands {
 public:
  Operands(CudnnGraph& graph, const AttentionShape& s, const CudnnPart& part, cudnnDataType_t type)
      : graph_(graph), shape_(s), part_(part), type_(type) {}

  CudnnValue query() { return rows(part_.heads, width()); }
  CudnnValue key() { return rows(part_.kv_heads, width()); }
  CudnnValue key_transposed() {
    return graph_.in_memory(type_, {part_.batch, part_.kv_heads, shape_.head_dim, shape_.seq},
                            {shape_.seq * width(), shape_.head_dim, 1, width()});
  }
  CudnnValue output() { return rows(part_.heads, shape_.heads * shape_.head_dim); }
  CudnnValue lse() {
    // That of a part of the heads begins in the middle.
    constexpr std::int64_t kFloat = 4;
    const bool is_aligned = part_.heads == shape_.heads || shape_.seq % kFloat == 0;
    return graph_.in_memory(CUDNN_DATA_FLOAT, per_row(), {shape_.heads * shape_.seq, shape_.seq, 1, 1},
                            is_aligned ? CudnnGraph::kAlignment : kFloat);
  }
  /// The length of each sequence.
  CudnnValue lengths() { return graph_.in_memory(CUDNN_DATA_INT32, {part_.batch, 1, 1, 1}, {1, 1, 1, 1}); }
  /// An intermediate with the shape of the keys.
  CudnnValue key_rows() {
    return graph_.between(type_, {part_.batch, part_.kv_heads, shape_.seq, shape_.head_dim},
                          {shape_.seq * width(), shape_.head_dim, width(), 1});
  }
  [[nodiscard]] cudnnDataType_t type() const { return type_; }
  [[nodiscard]] CudnnExtents scores() const { return {part_.batch, part_.heads, shape_.seq, shape_.seq}; }
  [[nodiscard]] CudnnExtents per_row() const { return {part_.batch, part_.heads, shape_.seq, 1}; }
  [[nodiscard]] CudnnExtents per_head() const {
    return {part_.batch, part_.heads, shape_.seq, shape_.head_dim};
  }

 private:
  [[nodiscard]] std::int64_t width() const { return (shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim; }
  CudnnValue rows(std::int64_t heads, std::int64_t row_stride) {
    return graph_.in_memory(type_, {part_.batch, heads, shape_.seq, shape_.head_dim},
                            {shape_.seq * row_stride, shape_.head_dim, row_stride, 1});
  }
  CudnnGraph& graph_;
  AttentionShape shape_;
  CudnnPart part_;
  cudnnDataType_t type_;
};

/// Causal mask: keeps s where the key is not after the query, nor before its window.
CudnnValue causal(CudnnGraph& g, CudnnValue s, std::int64_t window) {
  const CudnnValue keep = g.between(CUDNN_DATA_BOOLEAN, g.extents(s));
  g.pointwise(CUDNN_POINTWISE_CMP_GE, {g.index(s, kRowAxis), g.index(s, kColumnAxis)}, keep);
  const CudnnValue masked = g.pointwise(CUDNN_POINTWISE_BINARY_SELECT,
                                        {s, g.constant(-std::numeric_limits<float>::infinity()), keep});
  if (window == 0) return masked;
  const CudnnValue end = g.pointwise(CUDNN_POINTWISE_ADD,
                                     {g.index(masked, kColumnAxis), g.constant(static_cast<float>(window))});
  const CudnnValue is_within = g.between(CUDNN_DATA_BOOLEAN, g.extents(s));
  g.pointwise(CUDNN_POINTWISE_CMP_GT, {end, g.index(masked, kRowAxis)}, is_within);
  return g.pointwise(CUDNN_POINTWISE_BINARY_SELECT,
                     {masked, g.constant(-std::numeric_limits<float>::infinity()), is_within});
}

/// Keeps s where the query and the key are within the sequences.
CudnnValue within(CudnnGraph& g, CudnnValue s, const CudnnLengths& lengths) {
  const CudnnValue is_query = g.between(CUDNN_DATA_BOOLEAN, g.extents(s));
  g.pointwise(CUDNN_POINTWISE_CMP_LT, {g.index(s, kRowAxis), lengths.query}, is_query);
  const CudnnValue is_key = g.between(CUDNN_DATA_BOOLEAN, g.extents(s));
  g.pointwise(CUDNN_POINTWISE_CMP_LT, {g.index(s, kColumnAxis), lengths.key}, is_key);
  const CudnnValue keep = g.between(CUDNN_DATA_BOOLEAN, g.extents(s));
  g.pointwise(CUDNN_POINTWISE_LOGICAL_AND, {is_query, is_key}, keep);
  return g.pointwise(CUDNN_POINTWISE_BINARY_SELECT,
                     {s, g.constant(-std::numeric_limits<float>::infinity()), keep});
}

constexpr auto kM = CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC;
constexpr auto kN = CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC;
constexpr auto kK = CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC;

/// Bounds the extents of a matmul that count queries and keys, if their lengths are given.
std::vector<CudnnGraph::Length> bounds(const std::optional<CudnnLengths>& lengths,
                                       cudnnBackendAttributeName_t queries,
                                       cudnnBackendAttributeName_t keys) {
  if (!lengths) return {};
  return {{queries, lengths->query}, {keys, lengths->key}};
}

float scale_of(const AttentionShape& s) {
  return s.rules.scale > 0 ? s.rules.scale : 1.0F / std::sqrt(static_cast<float>(s.head_dim));
}

/// to = weights^T rows, summed over the query heads of a key/value head.
void sum_over_queries(CudnnGraph& g, const Operands& operands, CudnnValue weights, CudnnValue rows,
                      CudnnValue to, const std::optional<CudnnLengths>& lengths) {
  const CudnnExtents s = operands.scores();
  const CudnnValue transposed = g.between(operands.type(), s, {s[1] * s[2] * s[3], s[2] * s[3], 1, s[3]});
  g.reshape(weights, transposed);
  if (g.extents(to) == operands.per_head()) return g.matmul(transposed, rows, to, bounds(lengths, kK, kM));
  const CudnnValue all = g.between(operands.type(), operands.per_head());
  g.matmul(transposed, rows, all, bounds(lengths, kK, kM));
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, all, to);
}

}  // namespace

CudnnForwardPlan::CudnnForwardPlan(const CudnnLibrary& library, const CudnnDescriptor& device,
                                   const AttentionShape& s, cudnnDataType_t type) {
  CudnnGraph g(library);
  Operands operands(g, s, {s.batch, s.heads, s.kv_heads}, type);
  q = operands.query();
  k = operands.key_transposed();
  v = operands.key();
  y = operands.output();
  lse = operands.lse();
  const CudnnValue raw_scores = g.between(CUDNN_DATA_FLOAT, operands.scores());
  g.matmul(q, k, raw_scores);
  const CudnnValue scores =
      causal(g, g.pointwise(CUDNN_POINTWISE_MUL, {raw_scores, g.constant(scale_of(s))}), s.rules.window);
  const CudnnValue greatest = g.between(CUDNN_DATA_FLOAT, operands.per_row());
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, greatest);
  const CudnnValue powers =
      g.pointwise(CUDNN_POINTWISE_EXP, {g.pointwise(CUDNN_POINTWISE_SUB, {scores, greatest})});
  const CudnnValue sum = g.between(CUDNN_DATA_FLOAT, operands.per_row());
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
  g.pointwise(CUDNN_POINTWISE_ADD, {greatest, g.pointwise(CUDNN_POINTWISE_LOG, {sum})}, lse);
  const CudnnValue p = g.between(type, operands.scores());
  g.pointwise(CUDNN_POINTWISE_DIV, {powers, sum}, p);
  g.matmul(p, v, y);
  plan = g.plan(device);
}

CudnnGradientPlan::CudnnGradientPlan(const CudnnLibrary& library, const CudnnDescriptor& device,
                                     const AttentionShape& s, const CudnnPart& part, cudnnDataType_t type,
                                     bool is_deterministic)
    : deterministic(is_deterministic) {
  CudnnGraph g(library);
  Operands operands(g, s, part, type);
  q = operands.query();
  k = operands.key_transposed();
  v = operands.key_transposed();
  y = operands.output();
  dy = operands.output();
  lse = operands.lse();
  dq = operands.query();
  dk = operands.key();
  dv = operands.key();

  const CudnnExtents rows = operands.per_row();
  const CudnnValue row_sums = g.between(CUDNN_DATA_FLOAT, rows);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, g.pointwise(CUDNN_POINTWISE_MUL, {dy, y}), row_sums);
  delta = g.in_memory(CUDNN_DATA_FLOAT, rows, {rows[1] * rows[2], rows[2], 1, 1});
  g.pointwise(CUDNN_POINTWISE_MUL, {row_sums, g.constant(1)}, delta);

  if (s.seq % kWholeTile != 0) lengths = {operands.lengths(), operands.lengths()};
  const CudnnValue scale = g.constant(scale_of(s));
  const CudnnValue raw_scores = g.between(CUDNN_DATA_FLOAT, operands.scores());
  g.matmul(q, k, raw_scores, bounds(lengths, kM, kN));
  CudnnValue scaled = g.pointwise(CUDNN_POINTWISE_MUL, {raw_scores, scale});
  if (lengths) scaled = within(g, scaled, *lengths);
  const CudnnValue p = g.pointwise(
      CUDNN_POINTWISE_EXP, {causal(g, g.pointwise(CUDNN_POINTWISE_SUB, {scaled, lse}), s.rules.window)});
  sum_over_queries(g, operands, p, dy, dv, lengths);

  const CudnnValue dp = g.between(CUDNN_DATA_FLOAT, operands.scores());
  g.matmul(dy, v, dp, bounds(lengths, kM, kN));
  const CudnnValue centred = g.pointwise(CUDNN_POINTWISE_SUB, {dp, delta});
  const CudnnValue ds =
      g.pointwise(CUDNN_POINTWISE_MUL, {g.pointwise(CUDNN_POINTWISE_MUL, {centred, p}), scale});
  sum_over_queries(g, operands, ds, q, dk, lengths);

  const CudnnValue keys = operands.key_rows();
  g.reshape(k, keys);
  if (deterministic) {
    g.matmul(ds, keys, dq, bounds(lengths, kM, kK));
  } else {
    const CudnnExtents e = operands.per_head();
    sums = g.in_memory(CUDNN_DATA_FLOAT, e, {e[1] * e[2] * e[3], e[2] * e[3], e[3], 1});
    g.matmul(ds, keys, sums, bounds(lengths, kM, kK));
    g.pointwise(CUDNN_POINTWISE_IDENTITY, {sums}, dq);
  }
  plan = g.plan(device);
}

}  // namespace rooflm::backends::cuda
