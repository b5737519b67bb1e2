// The largest model whose training step fits an amount of memory.
#include "lab/largest_model.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compile/recipe.h"
#include "lab/run_record.h"

namespace rooflm::lab {
namespace {

constexpr std::int64_t kUnit = 64;      // of C: heads are as wide
constexpr std::int64_t kPerLayer = 80;  // C / L
constexpr std::int64_t kLargestK = 2048;

/// A model of width 64 k.
Point with_width(const Point& point, std::int64_t k) {
  Point sized = point;
  model::ModelConfig& config = sized.config;
  config.d_model = kUnit * k;
  config.heads = config.kv_heads = k;
  config.head_dim = kUnit;
  config.layers = std::max<std::int64_t>(config.d_model / kPerLayer, 1);
  config.d_ff =
      !config.arch.gated ? 4 * config.d_model : (8 * config.d_model / 3 + kUnit - 1) / kUnit * kUnit;
  return sized;
}

double needed_bytes(const Point& point) {
  const program::Program program = program_of(point);
  for (const record::Fact& known : step_facts(point, program)) {
    if (known.key == "needed_bytes") return known.value.value_or(0);
  }
  return 0;
}

}  // namespace

std::optional<LargestModel> largest_model(const Point& point, double limit_bytes) {
  std::int64_t fits = 0;
  std::int64_t fails = 1;
  double fits_bytes = 0;
  double fails_bytes = needed_bytes(with_width(point, fails));
  while (fails_bytes <= limit_bytes) {
    fits = std::exchange(fails, 2 * fails);
    fits_bytes = fails_bytes;
    if (fails > kLargestK) return std::nullopt;
    fails_bytes = needed_bytes(with_width(point, fails));
  }
  while (fails - fits > 1) {
    const std::int64_t middle = (fits + fails) / 2;
    const double bytes = needed_bytes(with_width(point, middle));
    (bytes <= limit_bytes ? fits : fails) = middle;
    (bytes <= limit_bytes ? fits_bytes : fails_bytes) = bytes;
  }
  if (fits == 0) return std::nullopt;
  model::ModelConfig config = with_width(point, fits).config;
  const std::int64_t params = model::parameter_count(config);
  return LargestModel{.config = std::move(config),
                      .params = params,
                      .needed_bytes = fits_bytes,
                      .next_needed_bytes = fails_bytes};
}

std::vector<record::Cell> largest_cells(const std::vector<Point>& points, double limit_bytes) {
  std::vector<record::Cell> cells;
  std::set<std::pair<std::string, compile::EngineKind>> seen;
  std::int64_t row = 0;
  for (const Point& point : points) {
    const std::string dtype(compile::dtype_name(point.step));
    if (!seen.emplace(dtype, point.step.engine).second) continue;
    const auto largest = largest_model(point, limit_bytes);
    if (!largest) continue;
    const auto number = [&](const char* column, double value, const char* unit = "") {
      cells.push_back(
          {.series = "largest", .row = row, .col = column, .value = value, .text = {}, .unit = unit});
    };
    const auto text = [&](const char* column, std::string value) {
      cells.push_back({.series = "largest",
                       .row = row,
                       .col = column,
                       .value = {},
                       .text = std::move(value),
                       .unit = {}});
    };
    text("device", point.device);
    text("dtype", dtype);
    text("engine", std::string(compile::name_of(point.step.engine)));
    text("kind", std::string(model::name_of(point.config.arch)));
    number("batch", static_cast<double>(point.batch));
    number("seq", static_cast<double>(point.seq));
    number("layers", static_cast<double>(largest->config.layers));
    number("d_model", static_cast<double>(largest->config.d_model));
    number("d_ff", static_cast<double>(largest->config.d_ff));
    number("heads", static_cast<double>(largest->config.heads));
    number("params", static_cast<double>(largest->params));
    number("needed", largest->needed_bytes, "B");
    number("limit", limit_bytes, "B");
    number("next_needed", largest->next_needed_bytes, "B");
    ++row;
  }
  return cells;
}

}  // namespace rooflm::lab
