// The view of generated text: time to the first token, tokens per second, and every token over its place.
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/statistics.h"
#include "report/generation.h"
#include "report/view_def.h"

namespace rooflm::report {

std::optional<double> token_rate(std::span<const double> token_s) {
  if (token_s.size() < 2) return std::nullopt;
  const auto others = token_s.subspan(1);
  return ratio_of(static_cast<double>(others.size()), std::accumulate(others.begin(), others.end(), 0.0));
}

namespace {

Table speed_table(const RunData& run, const std::vector<double>& token_s) {
  Table table{.columns = {{"prompt_tokens", "prompt tokens"},
                          {"tokens", "tokens"},
                          {"first_token_s", "first token", Show::seconds, "s"},
                          {"token_s_median", "then, median", Show::seconds, "s"},
                          {"token_s_max", "longest", Show::seconds, "s"},
                          {"tokens_per_s", "tokens/s", Show::si, "tok/s"}},
              .rows = {},
              .notes = {}};
  Row row;
  row.set("prompt_tokens", whole(run.number(kPromptTokens)));
  row.set("tokens", static_cast<std::int64_t>(token_s.size()));
  row.set("first_token_s", token_s.front());
  if (token_s.size() > 1) {
    const core::Summary others = core::summarise(std::vector<double>(token_s.begin() + 1, token_s.end()));
    row.set("token_s_median", others.median);
    row.set("token_s_max", others.max);
    row.set("tokens_per_s", cell_of(token_rate(token_s)));
  }
  table.rows.push_back(std::move(row));
  return table;
}

void add_generation(const RunData& run, const ViewOptions& /*options*/, View& view) {
  const std::vector<double> token_s =
      run.run.kind == kGeneration ? run.seconds(kTokenPhase) : std::vector<double>();
  if (token_s.empty()) return;
  view.add("generation", "Generated text", speed_table(run, token_s));
  Chart chart{.id = "generation",
              .title = "Time of each token",
              .kind = ChartKind::line,
              .x = {.title = "token"},
              .y = {.title = "time", .unit = "s"}};
  Series& series = series_named(chart, "token");
  for (std::size_t i = 0; i < token_s.size(); ++i) {
    series.points.push_back({.x = static_cast<double>(i + 1), .y = token_s[i]});
  }
  view.add(std::move(chart));
}

constexpr std::array kGenerationViews = {ViewDef{
    .place = 177,
    .info = {.name = "generation",
             .title = "Generation",
             .note = "first token: from asking for it, the reading of the prompt and making the engine "
                     "included. tokens/s: of those after the first. The whole window is computed anew for "
                     "every token: nothing is cached.",
             .needs = "generated text (rooflm generate -o)",
             .is_on_page = false},
    .of_run = add_generation,
    .of_all = nullptr}};

}  // namespace

std::span<const ViewDef> views_generation() { return kGenerationViews; }

}  // namespace rooflm::report
