// The tree of scopes of a step: phase, then the steps of the scope, then the kind of op, each with its sums.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

struct ScopeNode {
  std::int64_t parent = -1;  ///< index into the tree; -1: the root
  std::string name;          ///< "forward", "h.3", "qk", "matmul"; of the root the label of the run
  std::int64_t ops = 0;
  std::int64_t matmul_flop = 0, elementwise_flop = 0, bytes = 0;
  std::optional<double> device_s{}, wall_s{};  ///< nothing where no op has one
};

/// Parents before their children, which are in the order in which they first appear. Setup ops are left out.
/// `merge_layers`: all layers are one node "h.*".
std::vector<ScopeNode> scope_tree(const RunData& run, bool merge_layers);

}  // namespace rooflm::report
