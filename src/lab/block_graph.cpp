// The program of a step as a graph of blocks with the layers folded into one.
#include "lab/block_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "core/scope.h"

namespace rooflm::lab {
namespace {

using program::Op;
using program::TensorId;

/// The edge from one op to another, unless both are of one block of one layer.
void add_edge(const Op& writer, const Op& reader, std::vector<BlockEdge>& edges) {
  const core::Scope from(writer.scope);
  const core::Scope to(reader.scope);
  const bool is_same_layer = from.layer() == to.layer();
  if (is_same_layer && from.part() == to.part()) return;
  BlockEdge edge{.from = std::string(from.part()),
                 .to = std::string(to.part()),
                 .to_next_layer = from.layer() && to.layer() && !is_same_layer};
  if (std::ranges::find(edges, edge) == edges.end()) edges.push_back(std::move(edge));
}

}  // namespace

std::vector<BlockEdge> block_edges(const program::Program& program) {
  constexpr std::size_t kNobody = static_cast<std::size_t>(-1);
  std::vector<std::size_t> writer(program.tensors.size(), kNobody);
  std::vector<BlockEdge> edges;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const bool is_forward = op.phase == program::Phase::forward;
    if (op.recomputed || (!is_forward && op.phase != program::Phase::backward)) continue;
    for (const TensorId id : op.inputs) {
      const std::size_t by = id == program::kNone ? kNobody : writer[static_cast<std::size_t>(id)];
      if (by != kNobody) add_edge(program.ops[by], op, edges);
    }
    for (const TensorId id : op.outputs) {
      if (id != program::kNone) writer[static_cast<std::size_t>(id)] = is_forward ? i : kNobody;
    }
  }
  return edges;
}

record::Fact model_fact(const program::Program& program, std::span<const model::BlockSource> sources) {
  nlohmann::ordered_json edges = nlohmann::ordered_json::array();
  for (const BlockEdge& edge : block_edges(program)) {
    edges.push_back({edge.from, edge.to, edge.to_next_layer});
  }
  nlohmann::ordered_json lines = nlohmann::ordered_json::object();
  for (const model::BlockSource& source : sources) {
    lines[source.block] = fmt::format("{}:{}", source.file, source.line);
  }
  const nlohmann::ordered_json graph = {{"edges", std::move(edges)}, {"sources", std::move(lines)}};
  return {.key = record::kModelFact, .value = {}, .unit = {}, .text = graph.dump()};
}

}  // namespace rooflm::lab
