// The graph of a model as a part of the document.
#include <utility>

#include "report/model/work_figures.h"
#include "report/page/columns.h"
#include "report/page/model_graph.h"

namespace rooflm::report {
namespace {

Json json_node(const ModelNode& node) {
  using Of = ModelNode;
  static const TypedColumns<Of> columns = {
      {"name", &Of::name},   {"path", &Of::path},     {"source", &Of::source},         {"times", &Of::times},
      {"depth", &Of::depth}, {"last", &Of::last},     {"frame", &Of::is_frame},        {"flop", &Of::flop},
      {"bytes", &Of::bytes}, {"time_s", &Of::time_s}, {"time_share", &Of::time_share}, {"bound", &Of::bound}};
  static const TypedColumns<Group> work = {
      {"phase", &Group::phase},
      {"flop", [](const Group& group) { return group.work.flop(); }},
      {"bytes", [](const Group& group) { return group.work.bytes; }},
      {"intensity", [](const Group& group) { return group.work.intensity(); }},
      {"time_s", [](const Group& group) { return group.work.measured_s(); }},
      {"roof_s", [](const Group& group) { return group.work.shown_roof_s(); }},
      {"share", [](const Group& group) { return work_figures(group.work).roof_share; }},
      {"bound", [](const Group& group) { return group.work.bound; }}};
  Json json = json_object(columns, node);
  json["phases"] = json_objects(work, node.phases);
  return json;
}

}  // namespace

Json json_graph(const ModelGraph& graph) {
  Json nodes = Json::array();
  for (const ModelNode& node : graph.nodes) nodes.push_back(json_node(node));
  static const TypedColumns<ModelEdge> columns = {{"from", &ModelEdge::from},
                                                  {"to", &ModelEdge::to},
                                                  {"back", &ModelEdge::is_back},
                                                  {"lane", &ModelEdge::lane}};
  return {{"nodes", std::move(nodes)},
          {"edges", json_objects(columns, graph.edges)},
          {"lanes", lanes_of(graph, false)},
          {"back_lanes", lanes_of(graph, true)},
          {"lacks", graph.lacks}};
}

}  // namespace rooflm::report
