// The model of a run as a graph of blocks, layers folded.
#include "report/page/model_graph.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/json.h"

namespace rooflm::report {
namespace {

using GroupsByName = std::map<std::string, std::vector<Group>>;

GroupsByName groups_by_name(std::vector<Group>&& groups) {
  GroupsByName named;
  for (Group& group : groups) named[group.name].push_back(std::move(group));
  return named;
}

/// A part of the program in the place that it has in the drawing.
struct Part {
  std::string path, block;
  bool is_layered = false;
};

/// Parts as the forward pass comes to them, then those that only other phases have; of layers first what
/// stands before them, then theirs, then what follows. Parts of one block stand together.
std::vector<Part> parts_in_order(const RunData& run) {
  std::vector<Part> parts;
  std::set<std::string> known;
  for (const bool is_forward : {true, false}) {
    for (const TimedOp& timed : run.ops) {
      if (timed.op.phase == "setup" || (timed.op.phase == "forward") != is_forward) continue;
      if (!known.insert(timed.part).second) continue;
      parts.push_back(
          {.path = timed.part, .block = timed.block, .is_layered = layer_of(timed.op.scope).has_value()});
    }
  }
  const auto first_layered = std::ranges::find(parts, true, &Part::is_layered) - parts.begin();
  std::map<std::string, std::pair<int, std::size_t>> place;  // of a block
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int side = parts[i].is_layered ? 1 : static_cast<std::ptrdiff_t>(i) < first_layered ? 0 : 2;
    place.try_emplace(parts[i].block, side, i);
  }
  std::ranges::stable_sort(parts, {}, [&](const Part& part) {
    return std::pair(place.at(part.block), part.path.size() > part.block.size());
  });
  return parts;
}

void set_work(ModelNode& node, std::vector<Group> phases) {
  double highest_s = -1;
  for (const Group& group : phases) {
    // What moves no bytes was not counted.
    if (group.work.bytes > 0) {
      node.flop = node.flop.value_or(0) + group.work.flop();
      node.bytes = node.bytes.value_or(0) + static_cast<double>(group.work.bytes);
    }
    if (const auto time_s = group.work.measured_s()) node.time_s = node.time_s.value_or(0) + *time_s;
    if (group.time_share) node.time_share = node.time_share.value_or(0) + *group.time_share;
    if (group.work.roof_s.value_or(0) > highest_s && !group.work.bound.empty()) {
      highest_s = group.work.roof_s.value_or(0);
      node.bound = group.work.bound;
    }
  }
  node.phases = std::move(phases);
}

std::int64_t layers_of(const RunData& run) {
  std::set<std::int64_t> layers;
  for (const TimedOp& timed : run.ops) {
    if (const auto layer = layer_of(timed.op.scope)) layers.insert(*layer);
  }
  return static_cast<std::int64_t>(layers.size());
}

/// Appends blocks one by one, with a frame where one begins.
class NodeWriter {
 public:
  explicit NodeWriter(const RunData& run)
      : parts_(groups_by_name(parts_of(run))),
        blocks_(groups_by_name(blocks_of(run))),
        layer_(groups_by_name(group_ops(run,
                                        [](const TimedOp& timed) {
                                          return std::string(layer_of(timed.op.scope) ? "layer" : "");
                                        }))["layer"]),
        layers_(layers_of(run)) {}

  void add(const Part& part) {
    if (part.is_layered != is_in_layer_) {
      close_block();
      if (is_in_layer_) nodes_[layer_frame_].last = nodes_.size() - 1;
      is_in_layer_ = part.is_layered;
      if (is_in_layer_) layer_frame_ = add_frame("layer", "", 0, layers_, layer_);
    }
    const std::size_t depth = is_in_layer_ ? 1 : 0;
    const bool is_inside = part.path.size() > part.block.size();
    if (!is_inside || part.block != open_block_) close_block();
    if (is_inside && open_block_.empty()) {
      open_block_ = part.block;
      block_frame_ = add_frame(part.block, part.block, depth, 1, blocks_[part.block]);
    }
    ModelNode node{.name = is_inside ? part.path.substr(part.block.size() + 1) : part.path,
                   .path = part.path,
                   .source = {},
                   .depth = depth + (is_inside ? 1 : 0),
                   .last = nodes_.size()};
    set_work(node, parts_[part.path]);
    nodes_.push_back(std::move(node));
  }

  std::vector<ModelNode> nodes() && {
    close_block();
    if (is_in_layer_) nodes_[layer_frame_].last = nodes_.size() - 1;
    return std::move(nodes_);
  }

 private:
  std::size_t add_frame(const std::string& name, const std::string& path, std::size_t depth,
                        std::int64_t times, const std::vector<Group>& work) {
    ModelNode node{
        .name = name, .path = path, .source = {}, .times = times, .depth = depth, .is_frame = true};
    set_work(node, work);
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }

  void close_block() {
    if (open_block_.empty()) return;
    nodes_[block_frame_].last = nodes_.size() - 1;
    open_block_.clear();
  }

  GroupsByName parts_, blocks_;
  std::vector<Group> layer_;
  std::int64_t layers_;
  std::vector<ModelNode> nodes_;
  std::string open_block_;
  bool is_in_layer_ = false;
  std::size_t layer_frame_ = 0, block_frame_ = 0;
};

/// What rooflm wrote of its own model; null where there is nothing, or nothing that can be read.
nlohmann::json known_of(const RunData& run) {
  const std::string text = run.text(record::kModelFact);
  if (text.empty()) return {};
  try {
    return core::parse_json_object(text, "the record", record::kModelFact);
  } catch (const core::InputError&) {
    return {};
  }
}

void set_sources(const nlohmann::json& sources, std::vector<ModelNode>& nodes) {
  if (!sources.is_object()) return;
  for (ModelNode& node : nodes) {
    // What a pass put in the place of a block, as "attention/flash", is defined where the block is.
    for (std::string path = node.path; !path.empty() && node.source.empty();) {
      const auto found = sources.find(path);
      if (found != sources.end() && found->is_string()) node.source = found->get<std::string>();
      const auto slash = path.rfind('/');
      path.resize(slash == std::string::npos ? 0 : slash);
    }
  }
}

/// The number of the block of that path; nothing where there is none.
std::optional<std::size_t> block_named(const nlohmann::json& path, const std::vector<ModelNode>& nodes) {
  if (!path.is_string()) return std::nullopt;
  const auto& name = path.get_ref<const std::string&>();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].is_frame && nodes[i].path == name) return i;
  }
  return std::nullopt;
}

bool is_right_below(const std::vector<ModelNode>& nodes, std::size_t from, std::size_t to) {
  for (std::size_t i = from + 1; i < to; ++i) {
    if (!nodes[i].is_frame) return false;
  }
  return from < to;
}

std::vector<ModelEdge> edges_of(const nlohmann::json& edges, const std::vector<ModelNode>& nodes) {
  std::vector<ModelEdge> found;
  if (!edges.is_array()) return found;
  constexpr std::size_t kMost = 1000;  // of our models there are tens
  for (const nlohmann::json& edge : edges) {
    if (found.size() == kMost) break;
    if (!edge.is_array() || edge.size() < 2) continue;
    const auto from = block_named(edge[0], nodes);
    const auto to = block_named(edge[1], nodes);
    if (from && to) found.push_back({.from = *from, .to = *to, .is_back = *to <= *from});
  }
  return found;
}

/// Short edges lie nearest to the blocks; each takes the first lane that is free along it.
void set_lanes(ModelGraph& graph) {
  std::vector<ModelEdge*> order;
  for (ModelEdge& edge : graph.edges) {
    if (!is_right_below(graph.nodes, edge.from, edge.to)) order.push_back(&edge);
  }
  const auto span = [](const ModelEdge& edge) { return std::minmax(edge.from, edge.to); };
  std::ranges::stable_sort(order, {}, [&](const ModelEdge* edge) {
    const auto [low, high] = span(*edge);
    return high - low;
  });
  for (ModelEdge* edge : order) {
    const auto [low, high] = span(*edge);
    std::set<std::size_t> taken;
    for (const ModelEdge* other : order) {
      const auto [other_low, other_high] = span(*other);
      const bool meets =
          other->lane && other->is_back == edge->is_back && low <= other_high && other_low <= high;
      if (meets) taken.insert(*other->lane);
    }
    std::size_t lane = 0;
    while (taken.contains(lane)) ++lane;
    edge->lane = lane;
  }
}

std::vector<std::string> lacks_of(const RunData& run, const ModelGraph& graph) {
  std::vector<std::string> lacks;
  if (graph.edges.empty()) {
    lacks.emplace_back(
        "The record does not say which block reads which, so there are no arrows. rooflm records this for "
        "its own models.");
  }
  if (std::ranges::all_of(graph.nodes, [](const ModelNode& node) { return node.source.empty(); })) {
    lacks.emplace_back("The record does not say where blocks are defined.");
  }
  if (std::ranges::all_of(graph.nodes, [](const ModelNode& node) { return !node.bytes; })) {
    lacks.emplace_back("The record has no FLOP and bytes by shapes, so blocks have no roof and no bound.");
  }
  if (!run.has_op_times()) lacks.emplace_back("No step was observed, so blocks have no times.");
  return lacks;
}

}  // namespace

ModelGraph model_graph(const RunData& run) {
  ModelGraph graph;
  NodeWriter writer(run);
  for (const Part& part : parts_in_order(run)) writer.add(part);
  graph.nodes = std::move(writer).nodes();
  if (graph.nodes.empty()) return graph;
  const nlohmann::json known = known_of(run);
  if (known.is_object()) {
    set_sources(known.value("sources", nlohmann::json()), graph.nodes);
    graph.edges = edges_of(known.value("edges", nlohmann::json()), graph.nodes);
    set_lanes(graph);
  }
  graph.lacks = lacks_of(run, graph);
  return graph;
}

std::size_t lanes_of(const ModelGraph& graph, bool are_back) {
  std::size_t lanes = 0;
  for (const ModelEdge& edge : graph.edges) {
    if (edge.lane && edge.is_back == are_back) lanes = std::max(lanes, *edge.lane + 1);
  }
  return lanes;
}

}  // namespace rooflm::report
