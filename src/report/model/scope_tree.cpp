// The tree of scopes of a step.
#include "report/model/scope_tree.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "core/scope.h"

namespace rooflm::report {
namespace {

void add(std::optional<double>& sum, const std::optional<double>& more) {
  if (more) sum = sum.value_or(0) + *more;
}

void add(ScopeNode& node, const TimedOp& timed) {
  ++node.ops;
  node.matmul_flop += timed.op.matmul_flop;
  node.elementwise_flop += timed.op.elementwise_flop;
  node.bytes += timed.op.bytes_read + timed.op.bytes_written;
  add(node.wall_s, timed.shown_wall_s());
  if (timed.time) add(node.device_s, timed.time->device_s);
}

class Tree {
 public:
  explicit Tree(const std::string& label) { nodes_.push_back({.name = label}); }

  void add_op(const TimedOp& timed, std::string_view scope) {
    std::int64_t node = 0;
    add(nodes_.front(), timed);
    const auto step = [&](std::string_view name) {
      node = child_of(node, name);
      add(nodes_[static_cast<std::size_t>(node)], timed);
    };
    step(timed.op.phase);
    while (!scope.empty()) {
      const std::size_t end = std::min(scope.find('/'), scope.size());
      if (end > 0) step(scope.substr(0, end));
      scope.remove_prefix(std::min(end + 1, scope.size()));
    }
    step(timed.op.kind);
  }

  [[nodiscard]] std::vector<ScopeNode> take() { return std::move(nodes_); }

 private:
  std::int64_t child_of(std::int64_t node, std::string_view name) {
    const auto [entry, is_new] =
        index_.try_emplace({node, std::string(name)}, static_cast<std::int64_t>(nodes_.size()));
    if (is_new) nodes_.push_back({.parent = node, .name = std::string(name)});
    return entry->second;
  }

  std::vector<ScopeNode> nodes_;
  std::map<std::pair<std::int64_t, std::string>, std::int64_t> index_;
};

}  // namespace

std::vector<ScopeNode> scope_tree(const RunData& run, bool merge_layers) {
  Tree tree(run.run.label);
  for (const TimedOp& timed : run.ops) {
    if (timed.op.phase == "setup") continue;
    const std::string scope = merge_layers ? core::Scope(timed.op.scope).any_layer() : timed.op.scope;
    tree.add_op(timed, scope);
  }
  return tree.take();
}

}  // namespace rooflm::report
