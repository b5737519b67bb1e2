// The graph of a model as a part of the document.
#include <utility>

#include "report/model/work_figures.h"
#include "report/page/json_parts.h"
#include "report/page/model_graph.h"

namespace rooflm::report {
namespace {

Json json_work(const Group& group) {
  const WorkFigures figures = work_figures(group.work);
  return {{"phase", group.phase},
          {"flop", figures.flop},
          {"bytes", group.work.bytes},
          {"intensity", json_number(figures.intensity)},
          {"time_s", json_number(group.work.measured_s())},
          {"roof_s", json_number(group.work.roof_s)},
          {"share", json_number(figures.roof_share)},
          {"bound", group.work.bound}};
}

Json json_node(const ModelNode& node) {
  Json phases = Json::array();
  for (const Group& group : node.phases) phases.push_back(json_work(group));
  return {{"name", node.name},
          {"path", node.path},
          {"source", node.source},
          {"times", node.times},
          {"depth", node.depth},
          {"last", node.last},
          {"frame", node.is_frame},
          {"flop", json_number(node.flop)},
          {"bytes", json_number(node.bytes)},
          {"time_s", json_number(node.time_s)},
          {"time_share", json_number(node.time_share)},
          {"bound", node.bound},
          {"phases", std::move(phases)}};
}

}  // namespace

Json json_graph(const ModelGraph& graph) {
  Json nodes = Json::array();
  for (const ModelNode& node : graph.nodes) nodes.push_back(json_node(node));
  Json edges = Json::array();
  for (const ModelEdge& edge : graph.edges) {
    const Json lane = edge.lane ? Json(*edge.lane) : Json();
    edges.push_back({{"from", edge.from}, {"to", edge.to}, {"back", edge.is_back}, {"lane", lane}});
  }
  return {{"nodes", std::move(nodes)},
          {"edges", std::move(edges)},
          {"lanes", lanes_of(graph, false)},
          {"back_lanes", lanes_of(graph, true)},
          {"lacks", graph.lacks}};
}

}  // namespace rooflm::report
