// What forward leaves in memory for backward.
#include "report/model/saved_tensors.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace rooflm::report {
namespace {

bool is_of(const TimedOp* op, std::string_view phase) { return op != nullptr && op->op.phase == phase; }

bool is_saved(const RunData& run, const record::Tensor& tensor) {
  return tensor.first_op >= 0 && is_of(run.find_op(tensor.first_op), "forward") &&
         is_of(run.find_op(tensor.last_op), "backward");
}

/// The op after which most bytes of these tensors are alive, and how many those are.
std::pair<std::int64_t, std::int64_t> fullest(const std::vector<const record::Tensor*>& tensors) {
  std::map<std::int64_t, std::int64_t> change;
  for (const record::Tensor* tensor : tensors) {
    change[tensor->first_op] += tensor->bytes;
    change[tensor->last_op] -= tensor->bytes;
  }
  std::int64_t live = 0;
  std::pair<std::int64_t, std::int64_t> best{-1, 0};
  for (const auto& [op, bytes] : change) {
    live += bytes;
    if (live > best.second) best = {op, live};
  }
  return best;
}

}  // namespace

SavedTensors saved_tensors(const RunData& run) {
  std::vector<const record::Tensor*> tensors;
  for (const record::Tensor& tensor : run.tensors) {
    if (is_saved(run, tensor)) tensors.push_back(&tensor);
  }
  SavedTensors saved;
  std::tie(saved.op, saved.bytes) = fullest(tensors);
  std::map<std::string, std::pair<SavedGroup, std::set<std::int64_t>>> groups;
  for (const record::Tensor* tensor : tensors) {
    if (tensor->first_op > saved.op || tensor->last_op <= saved.op) continue;
    const TimedOp* maker = run.find_op(tensor->first_op);
    auto& [group, layers] = groups[maker->part];
    group.part = maker->part;
    ++group.tensors;
    group.bytes += tensor->bytes;
    if (const auto layer = layer_of(maker->op.scope)) layers.insert(*layer);
  }
  for (auto& [part, entry] : groups) {
    entry.first.layers = static_cast<std::int64_t>(entry.second.size());
    saved.groups.push_back(std::move(entry.first));
  }
  std::stable_sort(saved.groups.begin(), saved.groups.end(),
                   [](const SavedGroup& a, const SavedGroup& b) { return a.bytes > b.bytes; });
  return saved;
}

}  // namespace rooflm::report
