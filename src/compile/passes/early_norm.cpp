// Sums squares of gradients while the backward pass still runs.
#include "compile/passes/early_norm.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "compile/passes/op_like.h"
#include "compile/passes/words.h"

namespace rooflm::passes {
namespace {

/// Least parameters per sum: a launch takes as long as summing about that many.
constexpr std::int64_t kLeastSummed = std::int64_t{1} << 22U;
constexpr std::int64_t kParts = 20;

/// Index of the tensor that owns the storage of `id`.
std::size_t storage_of(const Program& p, TensorId id) {
  const TensorId base = p.tensor(id).view_of;
  return static_cast<std::size_t>(base == program::kNone ? id : base);
}

/// Gradients that are final after the op at `place`, and their number of parameters.
struct Part {
  std::size_t place = 0;
  std::vector<TensorId> gradients;
  std::int64_t parameters = 0;
};

/// The gradients that `norm`, the op at `end`, reads, in the order in which they become final.
std::vector<Part> parts_of(const Program& p, const Op& norm, std::size_t end) {
  std::vector<std::size_t> written(p.tensors.size(), 0);
  for (std::size_t i = 0; i < end; ++i) {
    for (const TensorId id : p.ops[i].outputs) {
      if (id != program::kNone) written[storage_of(p, id)] = i;
    }
  }
  const auto place_of = [&](TensorId id) { return written[storage_of(p, id)]; };
  std::vector<TensorId> gradients = norm.inputs;
  std::ranges::stable_sort(gradients, {}, place_of);
  std::int64_t all = 0;
  for (const TensorId id : gradients) all += p.shape(id).numel();
  const std::int64_t least = std::max(kLeastSummed, all / kParts);
  std::vector<Part> parts(1);
  for (const TensorId id : gradients) {
    if (parts.back().parameters >= least) parts.emplace_back();
    Part& part = parts.back();
    part.gradients.push_back(id);
    part.parameters += p.shape(id).numel();
    part.place = place_of(id);
  }
  return parts;
}

}  // namespace

void early_norm(Program& program) {
  const auto found = std::ranges::find_if(program.ops, [](const Op& op) { return op.is(ops::kGlobalNorm); });
  if (found == program.ops.end()) return;
  const auto end = static_cast<std::size_t>(found - program.ops.begin());
  const std::vector<Part> parts = parts_of(program, *found, end);
  if (parts.size() < 2) return;
  const TensorId squares = program.add_tensor({.name = "gradient_squares",
                                               .shape = {static_cast<std::int64_t>(parts.size())},
                                               .dtype = core::DType::f64,
                                               .role = program::Role::workspace,
                                               .full_precision = true});
  const Op norm = program.ops[end];
  std::vector<Op> rewritten;
  rewritten.reserve(program.ops.size() + parts.size());
  std::size_t next = 0;
  const auto add_sum = [&](Lane lane) {
    Op sum = op_like(norm, ops::kSquareSum, parts[next].gradients, {squares});
    sum.output_offset = {static_cast<std::int64_t>(next)};
    sum.lane = lane;
    rewritten.push_back(std::move(sum));
    ++next;
  };
  int newest = -1;  // the latest background op
  for (std::size_t i = 0; i < end; ++i) {
    rewritten.push_back(std::move(program.ops[i]));
    while (next + 1 < parts.size() && parts[next].place <= i) {
      newest = static_cast<int>(rewritten.size());
      add_sum(Lane::background);
    }
  }
  add_sum(Lane::compute);
  Op root = op_like(norm, ops::kNormOfSquares, {squares}, norm.outputs);
  root.waits = {newest};
  rewritten.push_back(std::move(root));
  for (std::size_t i = end + 1; i < program.ops.size(); ++i) rewritten.push_back(std::move(program.ops[i]));
  program.ops = std::move(rewritten);
}

}  // namespace rooflm::passes
