// The view of the load of experts: rows by expert, layer and step, and what their imbalance costs.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/statistics.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

/// Rows of a tile of GPUs' grouped matmuls: an expert's last tile is filled with nothing.
constexpr double kTileRows = 128;
/// Charts have a line for each layer up to this many.
constexpr std::size_t kMostLines = 8;
/// Bars of a chart that can still be told apart.
constexpr std::size_t kMostBars = 256;

/// The rows of each expert of a layer in one pass of a micro-batch.
struct Load {
  std::int64_t step = 0, layer = 0;
  std::vector<double> rows{};  ///< by expert

  [[nodiscard]] double total() const {
    double sum = 0;
    for (const double one : rows) sum += one;
    return sum;
  }
  [[nodiscard]] double mean() const { return total() / static_cast<double>(rows.size()); }
  [[nodiscard]] double most() const { return *std::ranges::max_element(rows); }
  [[nodiscard]] double idle() const { return static_cast<double>(std::ranges::count(rows, 0.0)); }
  [[nodiscard]] double padded() const {
    double sum = 0;
    for (const double one : rows) sum += std::ceil(one / kTileRows) * kTileRows;
    return sum;
  }
  /// 0: all have the same; (E - 1) / E: one has all.
  [[nodiscard]] double gini() const {
    std::vector<double> sorted = rows;
    std::ranges::sort(sorted);
    const auto count = static_cast<double>(sorted.size());
    double weighted = 0;
    for (std::size_t i = 0; i < sorted.size(); ++i)
      weighted += (2.0 * static_cast<double>(i) + 1 - count) * sorted[i];
    return weighted / (count * total());
  }
  /// The most rows of one of `groups` groups of neighbours.
  [[nodiscard]] double most_of(std::size_t groups) const {
    std::vector<double> sums(groups, 0);
    for (std::size_t i = 0; i < rows.size(); ++i) sums[i * groups / rows.size()] += rows[i];
    return *std::ranges::max_element(sums);
  }
};

/// By layer, then step and micro-batch. Passes without rows say nothing.
std::vector<Load> loads_of(const RunData& run) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::map<std::int64_t, double>> passes;
  for (const record::ExpertRows& one : run.expert_rows) {
    passes[{one.layer, one.step, one.micro_batch}][one.expert] =
        static_cast<double>(std::max<std::int64_t>(0, one.rows));
  }
  std::vector<Load> loads;
  for (const auto& [pass, rows] : passes) {
    Load load{.step = std::get<1>(pass), .layer = std::get<0>(pass)};
    for (const auto& [expert, count] : rows) load.rows.push_back(count);
    if (load.total() > 0) loads.push_back(std::move(load));
  }
  return loads;
}

template <class Value>
std::vector<double> each(std::span<const Load> loads, const Value& value) {
  std::vector<double> values;
  values.reserve(loads.size());
  for (const Load& load : loads) values.push_back(value(load));
  return values;
}

double max_over_mean(const Load& load) { return load.most() / load.mean(); }

/// The passes of one layer, or of all.
struct LayerLoad {
  std::string layer;
  std::size_t experts = 0;
  double passes = 0, rows = 0, over_mean = 0, worst = 0, gini = 0, idle = 0;
  std::optional<double> padded_share{};
};

LayerLoad layer_load(const std::string& layer, std::span<const Load> loads, bool has_tiles) {
  const std::vector<double> over_mean = each(loads, max_over_mean);
  LayerLoad row{.layer = layer,
                .experts = loads.front().rows.size(),
                .passes = static_cast<double>(loads.size()),
                .rows = core::median(each(loads, [](const Load& one) { return one.total(); })),
                .over_mean = core::median(over_mean),
                .worst = *std::ranges::max_element(over_mean),
                .gini = core::median(each(loads, [](const Load& one) { return one.gini(); })),
                .idle = core::mean(each(loads, [](const Load& one) { return one.idle(); }))};
  if (has_tiles) {
    row.padded_share =
        core::median(each(loads, [](const Load& one) { return 1 - one.total() / one.padded(); }));
  }
  return row;
}

const TypedColumns<LayerLoad>& layer_columns() {
  static const TypedColumns<LayerLoad> columns = {
      {"layer", "layer", &LayerLoad::layer},
      {"experts", "experts", &LayerLoad::experts},
      {"passes", "passes", [](const LayerLoad& one) { return whole(one.passes); }},
      {"rows", "rows", [](const LayerLoad& one) { return whole(one.rows); }},
      {"max_over_mean", "max/mean", &LayerLoad::over_mean, Show::fixed2},
      {"worst", "worst", &LayerLoad::worst, Show::fixed2},
      {"gini", "Gini", &LayerLoad::gini, Show::fixed3},
      {"idle", "idle", &LayerLoad::idle, Show::fixed1},
      {"padded_share", "padded", &LayerLoad::padded_share, Seen::when_known, Show::percent}};
  return columns;
}

/// Experts of each layer split over so many ranks, each of which waits for the slowest.
struct GroupLoad {
  std::size_t groups = 1, experts = 0;
  double over_mean = 0;
  std::optional<double> lost_share{}, lost_s{};
};

const TypedColumns<GroupLoad>& group_columns() {
  static const TypedColumns<GroupLoad> columns = {
      {"groups", "ranks", &GroupLoad::groups},
      {"experts", "experts each", &GroupLoad::experts},
      {"max_over_mean", "max/mean", &GroupLoad::over_mean, Show::fixed2},
      {"lost_share", "lost", &GroupLoad::lost_share, Show::percent},
      {"lost_s", "lost in a step", &GroupLoad::lost_s, Seen::when_known, Show::seconds}};
  return columns;
}

/// Time of the grouped matmuls of a step, where they were observed.
std::optional<double> matmul_s(const RunData& run) {
  std::optional<double> sum;
  for (const TimedOp& op : run.ops) {
    if (op.op.kind.starts_with("grouped_matmul") && op.time) sum = sum.value_or(0) + op.time->device_s;
  }
  return sum;
}

/// Sums over all passes: each of them waits for its own slowest rank.
GroupLoad group_load(std::span<const Load> loads, std::size_t groups, std::optional<double> matmuls_s) {
  double most = 0;
  double mean = 0;
  for (const Load& load : loads) {
    most += load.most_of(groups);
    mean += load.total() / static_cast<double>(groups);
  }
  GroupLoad row{.groups = groups,
                .experts = loads.front().rows.size() / groups,
                .over_mean = most / mean,
                .lost_share = 1 - mean / most};
  if (matmuls_s) row.lost_s = *matmuls_s / static_cast<double>(groups) * (most / mean - 1);
  return row;
}

std::vector<GroupLoad> group_loads(const RunData& run, std::span<const Load> loads) {
  const std::size_t experts = loads.front().rows.size();
  const auto own =
      static_cast<std::size_t>(std::max<std::int64_t>(1, run.run.config.integer("ep").value_or(1)));
  const std::optional<double> whole_s = own == 1 ? matmul_s(run) : std::nullopt;
  std::vector<GroupLoad> rows;
  if (is_on_gpu(run)) {
    double padded = 0;
    double total = 0;
    for (const Load& load : loads) {
      padded += load.padded();
      total += load.total();
    }
    GroupLoad& one = rows.emplace_back(group_load(loads, 1, std::nullopt));
    one.lost_share = 1 - total / padded;
    if (whole_s) one.lost_s = *whole_s * *one.lost_share;
  }
  for (std::size_t groups = 2; groups <= experts; ++groups) {
    const bool is_shown = (groups & (groups - 1)) == 0 || groups == experts || groups == own;
    if (is_shown && experts % groups == 0) rows.push_back(group_load(loads, groups, whole_s));
  }
  return rows;
}

/// The loads of one layer each.
std::vector<std::span<const Load>> by_layer(std::span<const Load> loads) {
  std::vector<std::span<const Load>> layers;
  for (std::size_t first = 0; first < loads.size();) {
    std::size_t end = first;
    while (end < loads.size() && loads[end].layer == loads[first].layer) ++end;
    layers.push_back(loads.subspan(first, end - first));
    first = end;
  }
  return layers;
}

std::string name_of_layer(const Load& load) { return "layer " + std::to_string(load.layer); }

/// Where there are many layers: their median and their worst.
Chart steps_chart(std::span<const Load> loads, std::span<const std::span<const Load>> layers) {
  Chart chart{.id = "experts.steps",
              .title = "Rows of the busiest expert over the mean, by step",
              .kind = ChartKind::line,
              .x = {.title = "step"},
              .y = {.title = "max / mean"}};
  std::map<std::string, std::map<std::int64_t, std::vector<double>>> lines;
  const bool has_few = layers.size() <= kMostLines;
  for (const Load& load : loads)
    lines[has_few ? name_of_layer(load) : "layers"][load.step].push_back(max_over_mean(load));
  for (const auto& [name, steps] : lines) {
    for (const auto& [step, values] : steps) {
      const auto x = static_cast<double>(step);
      series_named(chart, has_few ? name : "median layer")
          .points.push_back({.x = x, .y = core::median(values)});
      if (!has_few) {
        series_named(chart, "worst layer").points.push_back({.x = x, .y = *std::ranges::max_element(values)});
      }
    }
  }
  if (chart.series.empty() || chart.series.front().points.size() < 2) return {};
  return chart;
}

/// Shares of the rows by expert, over all passes; of many layers that with the worst balance.
Chart shares_chart(std::span<const std::span<const Load>> layers) {
  const std::size_t experts = layers.front().front().rows.size();
  Chart chart{.id = "experts.shares",
              .title = "Rows by expert, all passes",
              .kind = ChartKind::bar,
              .x = {.title = "expert"},
              .y = {.title = "share of the rows", .unit = "share"}};
  chart.limit = ChartLimit{.y = 1.0 / static_cast<double>(experts), .name = "balanced"};
  Series worst;
  double most_share = 0;
  for (const std::span<const Load> layer : layers) {
    Series series{.name = name_of_layer(layer.front())};
    std::vector<double> sums(experts, 0);
    double total = 0;
    for (const Load& load : layer) {
      for (std::size_t i = 0; i < std::min(experts, load.rows.size()); ++i) sums[i] += load.rows[i];
      total += load.total();
    }
    for (std::size_t i = 0; i < experts; ++i)
      series.points.push_back({.x = category_index(chart.x, std::to_string(i)), .y = sums[i] / total});
    const double share = *std::ranges::max_element(sums) / total;
    if (share > most_share) {
      most_share = share;
      worst = series;
    }
    chart.series.push_back(std::move(series));
  }
  if (layers.size() * experts > kMostBars) chart.series = {worst};
  return chart;
}

void add_experts(const RunData& run, const ViewOptions& options, View& view) {
  const std::vector<Load> loads = loads_of(run);
  if (loads.empty()) return;
  const auto layers = by_layer(loads);
  std::vector<LayerLoad> rows;
  if (layers.size() > 1) rows.push_back(layer_load("all", loads, is_on_gpu(run)));
  for (const std::span<const Load> layer : layers)
    rows.push_back(layer_load(std::to_string(layer.front().layer), layer, is_on_gpu(run)));
  view.add("experts", "Experts by layer", layer_columns().table(rows, options.top, "layers"));
  view.add("experts.groups", "Time of grouped matmuls lost to imbalance",
           group_columns().table(group_loads(run, loads)));
  view.add(steps_chart(loads, layers));
  view.add(shares_chart(layers));
}

constexpr std::array kExpertsViews = {ViewDef{
    .place = 65,
    .info = {.name = "experts",
             .title = "Load of experts",
             .note =
                 "Rows are tokens times the experts that each takes. Medians over passes (a step's "
                 "micro-batches); worst: of any pass; idle: experts without a row, on average; padded: rows "
                 "of tiles of 128 that are empty. Ranks that share a layer's experts wait for the one with "
                 "the most rows. --routing balanced shows what equal loads would take.",
             .needs = "steps of a model with experts (rooflm train, bench or profile with -o)"},
    .of_run = add_experts,
    .columns = [] { return columns_of(layer_columns(), group_columns()); }}};

}  // namespace

std::span<const ViewDef> views_experts() { return kExpertsViews; }

}  // namespace rooflm::report
