// Runs that differ in one size alone.
#include "report/runs/size_sweeps.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "report/runs/sweep.h"

namespace rooflm::report {
namespace {

/// A size that may be swept, and what changes with it all by itself. Heads share the width of the model, or
/// each has the same size.
struct SizeAxis {
  std::string name;
  std::vector<std::string> follows;
  bool same_head_size = false;
};

std::vector<SizeAxis> size_axes() {
  return {{"seq", {"seq"}},
          {"batch", {"batch"}},
          {"heads", {"heads", "kv_heads"}},
          {"heads", {"heads", "kv_heads", "head_dim", "params"}, true}};
}

/// What runs of a sweep have in common.
std::string key_of(const RunData& run, const SizeAxis& axis) {
  std::string key = key_without(run.run, axis.follows);
  if (!axis.same_head_size) return key;
  const std::int64_t heads = std::max<std::int64_t>(1, size_of(run, "heads"));
  const std::int64_t head_dim = run.run.config.integer("head_dim").value_or(size_of(run, "d_model") / heads);
  return key + "D=" + std::to_string(head_dim);
}

bool is_swept(const std::vector<const RunData*>& runs, const std::string& axis) {
  std::set<std::int64_t> sizes;
  for (const RunData* run : runs) sizes.insert(size_of(*run, axis));
  return sizes.size() >= 2;
}

}  // namespace

std::int64_t size_of(const RunData& run, std::string_view axis) {
  return run.run.config.integer(axis).value_or(0);
}

std::vector<SizeSweep> size_sweeps(const RecordSet& set) {
  std::vector<SizeSweep> sweeps;
  for (const SizeAxis& axis : size_axes()) {
    std::vector<std::pair<std::string, std::vector<const RunData*>>> groups;  // in the order of the runs
    for (const RunData& run : set.runs) {
      if (run.run.status == "oom" || run.run.status == "failed") continue;
      const std::string key = key_of(run, axis);
      auto group = std::ranges::find(groups, key, [](const auto& of) { return of.first; });
      if (group == groups.end()) group = groups.insert(groups.end(), {key, {}});
      group->second.push_back(&run);
    }
    std::erase_if(groups, [&](const auto& group) { return !is_swept(group.second, axis.name); });
    std::vector<const record::Run*> firsts;
    for (const auto& [key, runs] : groups) firsts.push_back(&runs.front()->run);
    const std::vector<std::string> settings = telling(firsts, axis.follows);
    for (auto& [key, runs] : groups) {
      std::ranges::stable_sort(runs, {}, [&](const RunData* run) { return size_of(*run, axis.name); });
      SizeSweep sweep{.axis = axis.name, .of = short_label(runs.front()->run, settings)};
      sweep.runs = std::move(runs);
      sweeps.push_back(std::move(sweep));
    }
  }
  return sweeps;
}

}  // namespace rooflm::report
