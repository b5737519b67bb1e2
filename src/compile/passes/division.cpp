// Which weights data-parallel ranks divide (ZeRO), and what a rank has of them.
#include "compile/passes/division.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include "compile/passes/matrix_optimizer.h"
#include "compile/passes/words.h"

namespace rooflm::passes {
namespace {

using program::Cut;

struct Matrix {
  TensorId weight = program::kNone;
  double flop = 0;  ///< of its update
};

/// By falling FLOPs, then in the order of the weights.
std::vector<Matrix> sorted_matrices(const Program& step, const OptimizerOptions& optimizer) {
  const std::vector<bool> is_matrix = layer_matrices(step);
  std::map<std::vector<std::int64_t>, double> known;  // by shape
  std::vector<Matrix> matrices;
  for (TensorId id = 0; id < static_cast<TensorId>(step.tensors.size()); ++id) {
    if (!is_matrix[static_cast<std::size_t>(id)]) continue;
    const Shape& shape = step.shape(id);
    const auto [flop, is_new] = known.try_emplace({shape.dims().begin(), shape.dims().end()}, 0);
    if (is_new) flop->second = matrix_update_flop(shape, optimizer);
    matrices.push_back({.weight = id, .flop = flop->second});
  }
  std::ranges::stable_sort(matrices, std::greater(), &Matrix::flop);
  return matrices;
}

}  // namespace

std::vector<int> matrix_owners(const Program& step, const OptimizerOptions& optimizer, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<double> flop(count, 0);
  std::vector<int> owners(step.tensors.size(), Cut::kNobody);
  for (const Matrix& matrix : sorted_matrices(step, optimizer)) {
    const auto least = std::ranges::min_element(flop);
    owners[static_cast<std::size_t>(matrix.weight)] = static_cast<int>(least - flop.begin());
    *least += matrix.flop;
  }
  std::vector<std::size_t> by_flop(count);
  std::iota(by_flop.begin(), by_flop.end(), std::size_t{0});
  std::ranges::stable_sort(by_flop, std::greater(), [&](std::size_t rank) { return flop[rank]; });
  std::vector<int> number(count);
  for (std::size_t i = 0; i < count; ++i) number[by_flop[i]] = static_cast<int>(i);
  for (int& owner : owners)
    if (owner != Cut::kNobody) owner = number[static_cast<std::size_t>(owner)];
  return owners;
}

Division::Division(const Program& step, const compile::Sharding& sharding, const program::Coordinates& rank,
                   const OptimizerOptions& optimizer)
    : sharding_(sharding), rank_(rank), owners_(step.tensors.size(), Cut::kNobody) {
  if (sharding.zero > 0 && is_of_matrices(optimizer.kind))
    owners_ = matrix_owners(step, optimizer, sharding.data_ranks());
}

Group Division::sharers_of(const Tensor& weight) {
  return program::is_split(weight, Group::expert) ? Group::copies : Group::data;
}

/// Experts are split already, over some of the ranks.
bool Division::divides(const Tensor& weight) const {
  const bool is_shared =
      sharers_of(weight) == Group::data || (sharding_.has_exact_rows && sharding_.expert_copies() > 1);
  return sharding_.zero > 0 && is_shared && program::whole_shape(weight).rank() > 1;
}

Tensor Division::part_of(TensorId weight, const Tensor& whole) const {
  Tensor part = whole;
  const bool is_of_all = sharers_of(whole) == Group::data;
  const int owner = owners_.at(static_cast<std::size_t>(weight));
  part.shards.push_back({.group = sharers_of(whole),
                         .axis = owner == Cut::kNobody ? program::Shard::kElements : program::Shard::kOwner,
                         .index = is_of_all ? rank_.data : rank_.data / sharding_.expert,
                         .parts = is_of_all ? sharding_.data_ranks() : sharding_.expert_copies(),
                         .owner = std::max(owner, 0),
                         .whole = whole.shape});
  part.shape = program::shape_of(part.shards.back());
  return part;
}

}  // namespace rooflm::passes
