// The model view: the program of a run as a graph of blocks, layers folded.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/page/model_graph.h"
#include "report/runs/generation.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

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
std::optional<std::string> forward_kernels(const RunData& run, const std::string& part) {
  std::vector<std::string> names;
  for (const TimedOp& timed : run.ops) {
    const std::string& kernel = timed.op.kernel;
    if (timed.part != part || timed.op.phase != kPhases[0] || kernel.empty()) continue;
    if (std::ranges::find(names, kernel) == names.end()) names.push_back(kernel);
  }
  return names.empty() ? std::nullopt : std::optional(fmt::format("{}", fmt::join(names, ", ")));
}

/// A block with what the table shows beside it.
struct ModelRow : ModelNode {
  std::int64_t layers = 1;
  std::string reads{};
  std::optional<std::string> kernels{};
  [[nodiscard]] const Work* work(std::string_view phase) const {
    const auto found = std::ranges::find(phases, phase, &Group::phase);
    return found == phases.end() ? nullptr : &found->work;
  }
};

/// Phases have columns of their own.
TypedColumns<ModelRow> model_columns(const std::vector<std::string>& phases) {
  TypedColumns<ModelRow> columns = {{"block", "block", &ModelRow::path},
                                    {"times", "layers", &ModelRow::layers}};
  for (const std::string& phase : phases) {
    const auto seconds = [phase](const ModelRow& row) {
      return row.work(phase) == nullptr ? std::nullopt : row.work(phase)->measured_s();
    };
    const auto bound = [phase](const ModelRow& row) {
      return row.work(phase) == nullptr ? std::nullopt : std::optional(row.work(phase)->bound);
    };
    columns.add({(phase + "_s").c_str(), phase.c_str(), seconds, Show::seconds});
    columns.add({(phase + "_bound").c_str(), bound});
  }
  return columns.add({{"time_share", "of kernels", &ModelRow::time_share, Show::percent},
                      {"flop", "FLOP", &ModelRow::flop, Show::si, "flop"},
                      {"bytes", "bytes", &ModelRow::bytes, Show::bytes},
                      {"bound", "bound by", &ModelRow::bound},
                      {"reads", "reads", &ModelRow::reads},
                      {"source", "defined in", &ModelRow::source},
                      {"kernels", "forward kernels", &ModelRow::kernels}});
}

void add_model(const RunData& run, const ViewOptions& /*options*/, View& view) {
  const auto graph = std::make_shared<const ModelGraph>(model_graph(run));
  if (graph->nodes.empty()) return;
  std::vector<ModelRow> rows;
  std::size_t layer_end = 0;
  std::int64_t layers = 1;
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
    const ModelNode& node = graph->nodes[i];
    if (node.is_frame && node.path.empty()) {
      layers = node.times;
      layer_end = node.last;
    }
    if (node.is_frame) continue;
    rows.push_back({node, i <= layer_end ? layers : 1, reads_of(*graph, i), forward_kernels(run, node.path)});
  }
  Table table = model_columns(phases_of(run)).table(rows);
  table.notes = graph->lacks;
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
            .columns =
                [] {
                  std::vector<std::string> phases(kGenerationPhases.begin(), kGenerationPhases.end());
                  phases.insert(phases.end(), kPhases.begin(), kPhases.end());
                  return columns_of(model_columns(phases));
                }},
};

}  // namespace

std::span<const ViewDef> views_model() { return kModelViews; }

}  // namespace rooflm::report
