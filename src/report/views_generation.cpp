// The view of generated text: time to the first token, tokens per second, reading prompts and decoding apart
// with what binds them, and every token over its place.
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/ratio.h"
#include "core/statistics.h"
#include "core/units.h"
#include "report/generation.h"
#include "report/sweep.h"
#include "report/view.h"
#include "report/view_def.h"

namespace rooflm::report {

std::optional<double> token_rate(std::span<const double> token_s) {
  if (token_s.size() < 2) return std::nullopt;
  const auto others = token_s.subspan(1);
  return ratio_of(static_cast<double>(others.size()), std::accumulate(others.begin(), others.end(), 0.0));
}

std::string answer_decode(const RecordSet& set) {
  const std::vector<RunName> names = run_names(set.runs);
  std::string text;
  for (std::size_t i = 0; i < set.runs.size(); ++i) {
    const RunData& run = set.runs[i];
    const std::vector<double> seconds = run.seconds("step");
    const auto tokens = run.number("tokens");
    if (seconds.empty() || !tokens) continue;
    const double step_s = core::median(seconds);
    text += fmt::format("{}{}: {:.0f} tokens/s, {} each", text.empty() ? "" : " ", names[i].which,
                        *tokens / step_s, core::format_seconds(step_s));
    const record::Prediction* roof = run.prediction("phase:decode", "roof_s");
    if (roof != nullptr)
      text += fmt::format(", {:.0f}% of the roof ({})", 100 * roof->value / step_s, roof->bound);
    text += ".";
  }
  return text;
}

namespace {

Table speed_table(const RunData& run, const std::vector<double>& token_s) {
  Table table{.columns = {{"texts", "texts"},
                          {"prompt_tokens", "prompt tokens"},
                          {"tokens", "tokens"},
                          {"first_token_s", "first token", Show::seconds, "s"},
                          {"token_s_median", "then, median", Show::seconds, "s"},
                          {"token_s_max", "longest", Show::seconds, "s"},
                          {"text_tokens_per_s", "tokens/s per text", Show::si, "tok/s"},
                          {"tokens_per_s", "tokens/s", Show::si, "tok/s"}},
              .rows = {},
              .notes = {}};
  const double texts = run.number(kTexts).value_or(1);
  const double tokens = run.number(kNewTokens).value_or(static_cast<double>(token_s.size()));
  Row row;
  row.set("texts", whole(texts));
  row.set("prompt_tokens", whole(run.number(kPromptTokens)));
  row.set("tokens", whole(tokens));
  row.set("setup_s", cell_of(run.number(kSetupS)));
  row.set("first_token_s", token_s.front());
  if (token_s.size() > 1) {
    const std::vector<double> others(token_s.begin() + 1, token_s.end());
    const core::Summary times = core::summarise(others);
    row.set("token_s_median", times.median);
    row.set("token_s_max", times.max);
    row.set("text_tokens_per_s", cell_of(token_rate(token_s)));
    // The first step gave every text a token.
    row.set("tokens_per_s",
            cell_of(core::ratio_of(tokens - texts, std::accumulate(others.begin(), others.end(), 0.0))));
  }
  table.rows.push_back(std::move(row));
  return table;
}

/// One way of reading tokens: its time beside the least.
Row phase_row(const RunData& run, const std::string& phase, const std::vector<double>& seconds) {
  const double time_s = core::median(seconds);
  Row row;
  row.set("phase", phase);
  row.set("steps", static_cast<std::int64_t>(seconds.size()));
  row.set("step_s", time_s);
  const auto flop = run.number(phase + "_flop");
  const auto bytes = run.number(phase + "_bytes");
  row.set("flop", cell_of(flop));
  row.set("bytes", cell_of(bytes));
  row.set("flop_per_s", cell_of(core::ratio_of(flop, time_s)));
  row.set("byte_per_s", cell_of(core::ratio_of(bytes, time_s)));
  const record::Prediction* roof = run.prediction("phase:" + phase, "roof_s");
  if (roof == nullptr) return row;
  row.set("roof_s", roof->value);
  row.set("share", cell_of(core::ratio_of(roof->value, time_s)));
  row.set("bound", roof->bound);
  return row;
}

void add_phases(const RunData& run, View& view) {
  Table table{.columns = {{"phase", "phase"},
                          {"steps", "steps"},
                          {"step_s", "time of a step", Show::seconds, "s"},
                          {"flop", "FLOP", Show::si, "flop"},
                          {"bytes", "weights and cache", Show::bytes, "byte"},
                          {"flop_per_s", "FLOP/s", Show::si, "flop/s"},
                          {"byte_per_s", "bytes/s", Show::si, "byte/s"},
                          {"roof_s", "roof", Show::seconds, "s"},
                          {"share", "share", Show::percent},
                          {"bound", "bound"}},
              .rows = {},
              .notes = {}};
  const bool is_decoding = run.setting("phase") == kDecodePhase;
  for (const char* phase : {kPrefillPhase, kDecodePhase}) {
    const bool is_step = is_decoding && phase == kDecodePhase;
    const std::vector<double> seconds = run.seconds(is_step ? "step" : phase);
    if (seconds.empty()) continue;
    Row row = phase_row(run, phase, seconds);
    if (is_step)
      row.set("tokens_per_s", cell_of(core::ratio_of(run.number("tokens"), core::median(seconds))));
    table.rows.push_back(std::move(row));
  }
  if (table.rows.empty()) return;
  if (is_decoding)
    table.columns.insert(table.columns.begin() + 3, {"tokens_per_s", "tokens/s", Show::si, "tok/s"});
  view.add("generation_phases", "Prefill and decode", std::move(table));
}

void add_generation(const RunData& run, const ViewOptions& /*options*/, View& view) {
  const bool is_text = run.run.kind == kGeneration;
  const std::vector<double> token_s = is_text ? run.seconds(kTokenPhase) : std::vector<double>();
  if (!token_s.empty()) view.add("generation", "Generated text", speed_table(run, token_s));
  if (is_text || run.setting("phase") == kDecodePhase) add_phases(run, view);
  if (token_s.empty()) return;
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
             .note =
                 "first token: time until all texts have their first token, including prefill. tokens/s: "
                 "tokens after the first. prefill processes texts from their beginning; decode adds one "
                 "token to each, with the KV cache; times are those of the device program. roof: the larger "
                 "of the matmul time and the time to read weights and KV cache once; share = roof / time.",
             .needs = "generated text (rooflm generate -o), or steps with --phase decode",
             .is_on_page = false},
    .of_run = add_generation,
    .of_all = nullptr}};

}  // namespace

std::span<const ViewDef> views_generation() { return kGenerationViews; }

}  // namespace rooflm::report
