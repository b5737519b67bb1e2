// The model view: the program of a run as a graph of blocks, layers folded.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/model_graph.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

/// "ln1, attention/proj of the layer before"
std::string reads_of(const ModelGraph& graph, std::size_t node) {
  std::string names;
  for (const ModelEdge& edge : graph.edges) {
    if (edge.to != node) continue;
    names += (names.empty() ? "" : ", ") + graph.nodes[edge.from].path +
             (edge.is_back ? " of the layer before" : "");
  }
  return names;
}

/// The kernels of a block's forward pass, in the order in which they run.
std::string kernels_of(const RunData& run, const std::string& part) {
  std::vector<std::string> names;
  for (const TimedOp& timed : run.ops) {
    const std::string& kernel = timed.op.kernel;
    if (timed.part != part || timed.op.phase != kPhases[0] || kernel.empty()) continue;
    if (std::ranges::find(names, kernel) == names.end()) names.push_back(kernel);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Row model_row(const RunData& run, const ModelGraph& graph, std::size_t i, std::int64_t layers) {
  const ModelNode& node = graph.nodes[i];
  Row row;
  row.set("block", node.path);
  row.set("times", layers);
  row.set("flop", cell_of(node.flop));
  row.set("bytes", cell_of(node.bytes));
  for (const Group& group : node.phases) {
    row.set(group.phase + "_s", cell_of(group.work.measured_s()));
    row.set(group.phase + "_bound", group.work.bound);
  }
  row.set("time_share", cell_of(node.time_share));
  row.set("bound", node.bound);
  row.set("reads", reads_of(graph, i));
  row.set("source", node.source);
  const std::string kernels = kernels_of(run, node.path);
  row.set("kernels", kernels.empty() ? Cell() : Cell(kernels));
  return row;
}

std::vector<Column> model_columns(const RunData& run) {
  std::vector<Column> columns = {{"block", "block"}, {"times", "layers"}};
  for (const std::string& phase : phases_of(run))
    columns.push_back({phase + "_s", phase, Show::seconds, "s"});
  const std::vector<Column> others = {{"time_share", "of kernels", Show::percent},
                                      {"flop", "FLOP", Show::si, "flop"},
                                      {"bytes", "bytes", Show::bytes, "byte"},
                                      {"bound", "bound by"},
                                      {"reads", "reads"},
                                      {"source", "defined in"},
                                      {"kernels", "forward kernels"}};
  columns.insert(columns.end(), others.begin(), others.end());
  return columns;
}

void add_model(const RunData& run, const ViewOptions& /*options*/, View& view) {
  const auto graph = std::make_shared<const ModelGraph>(model_graph(run));
  if (graph->nodes.empty()) return;
  Table table{.columns = model_columns(run), .rows = {}, .notes = graph->lacks};
  std::size_t layer_end = 0;
  std::int64_t layers = 1;
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
    const ModelNode& node = graph->nodes[i];
    if (node.is_frame && node.path.empty()) {
      layers = node.times;
      layer_end = node.last;
    }
    if (!node.is_frame) table.rows.push_back(model_row(run, *graph, i, i <= layer_end ? layers : 1));
  }
  view.add("model", "Blocks of the model", std::move(table));
  view.add(Chart{
      .id = "model", .title = "Model: blocks, layers folded", .kind = ChartKind::graph, .graph = graph});
}

constexpr std::array kModelViews = {
    ViewDef{.place = 34,
            .info = {.name = "model",
                     .title = "Model",
                     .note = "The blocks of the step in the order of the forward pass; figures are summed "
                             "over layers and phases, times are those in kernels. reads: blocks whose "
                             "results the forward pass reads; the backward pass goes the other way. defined "
                             "in: the line that opens the block in rooflm's sources; forward kernels: "
                             "what the engine runs for it.",
                     .needs = "ops (rooflm profile)",
                     .is_on_page = true},
            .of_run = add_model,
            .of_all = nullptr},
};

}  // namespace

std::span<const ViewDef> views_model() { return kModelViews; }

}  // namespace rooflm::report
