// The view of training runs: how far they came, and the loss step by step.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/runs/loss_curves.h"
#include "report/tables/train_rows.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

/// Charts of more losses than this show means of equal numbers of steps: single batches hide how runs differ.
constexpr std::size_t kMostPoints = 200;

void add_points(std::span<const ChartPoint> points, Series& series) {
  const std::size_t width = (points.size() + kMostPoints - 1) / kMostPoints;
  for (std::size_t first = 0; first < points.size(); first += width) {
    const auto some = points.subspan(first, std::min(width, points.size() - first));
    double sum = 0;
    for (const ChartPoint& point : some) sum += point.y;
    series.points.push_back({.x = some.back().x, .y = sum / static_cast<double>(some.size())});
  }
}

/// Loss by step; `name` tells several runs apart.
void add_losses(const RecordFile& file, const std::string& name, Chart& chart) {
  for (const auto& [column, what] : {std::pair{"loss", "training"}, {"val_loss", "validation"}}) {
    std::vector<ChartPoint> points;
    for (const record::Cell& cell : file.cells) {
      if (cell.series == record::kTrainingSeries && cell.col == column && cell.value) {
        points.push_back({.x = static_cast<double>(cell.row), .y = *cell.value});
      }
    }
    if (points.empty()) continue;
    add_points(points, series_named(chart, name.empty() ? what : fmt::format("{}, {}", name, what)));
  }
}

void add_training(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  std::vector<RunData> runs;
  std::ranges::copy_if(set.runs, std::back_inserter(runs), is_training);
  view.add("training", "Training", runs.empty() ? Table() : train_table(runs));
  const std::vector<LossCurve> curves = loss_curves(set);
  if (curves.size() > 1) {
    view.add("training.losses", "Losses compared", loss_table(curves));
    view.add("training.equal_loss", "Tokens and time to an equal loss", equal_loss_table(curves));
  }
  Chart chart{.id = "training.loss",
              .title = "Loss",
              .kind = ChartKind::line,
              .x = {.title = "step"},
              .y = {.title = "loss", .unit = "nats"}};
  for (const RecordFile& file : set.files) add_losses(file, set.files.size() > 1 ? file.name : "", chart);
  view.add(std::move(chart));
}

constexpr std::array kTrainingViews = {
    ViewDef{.place = 175,
            .info = {.name = "training",
                     .title = "Training",
                     .note = "Losses in nats per token. tokens/s and MFU cover all steps of the process, "
                             "including waiting for data; those of the overview are of the median step.",
                     .needs = "a training run (rooflm train -o)"},
            .of_all = add_training,
            .columns = [] {
              std::vector<Column> columns = columns_of(train_columns());
              const std::vector<Column> losses = columns_of_losses();
              columns.insert(columns.end(), losses.begin(), losses.end());
              return columns;
            }}};

}  // namespace

std::span<const ViewDef> views_training() { return kTrainingViews; }

}  // namespace rooflm::report
