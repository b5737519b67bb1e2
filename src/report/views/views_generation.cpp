// The view of generated text: time to the first token, tokens per second, reading prompts and decoding apart
// with what binds them, and every token over its place.
#include <fmt/format.h>

#include <algorithm>
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
#include "report/runs/generation.h"
#include "report/runs/sweep.h"
#include "report/tables/typed_columns.h"
#include "report/views/view.h"
#include "report/views/view_def.h"

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
    const record::Prediction* roof = run.prediction("phase:" + run.setting("phase"), "roof_s");
    if (roof != nullptr)
      text += fmt::format(", {:.0f}% of the roof ({})", 100 * roof->value / step_s, roof->bound);
    text += ".";
  }
  return text;
}

namespace {

/// How fast texts were generated. Not known of one token: what comes after the first.
struct GenerationSpeed {
  double texts = 1, tokens = 0, first_token_s = 0;
  std::optional<double> prompt_tokens{}, setup_s{}, token_s_median{}, token_s_max{};
  std::optional<double> text_tokens_per_s{}, tokens_per_s{};
};

const TypedColumns<GenerationSpeed>& speed_columns() {
  using Speed = GenerationSpeed;
  static const TypedColumns<Speed> columns = {
      {"texts", "texts", [](const Speed& of) { return whole(of.texts); }},
      {"prompt_tokens", "prompt tokens", [](const Speed& of) { return whole(of.prompt_tokens); }},
      {"tokens", "tokens", [](const Speed& of) { return whole(of.tokens); }},
      {"setup_s", &Speed::setup_s},
      {"first_token_s", "first token", &Speed::first_token_s, Show::seconds},
      {"token_s_median", "then, median", &Speed::token_s_median, Show::seconds},
      {"token_s_max", "longest", &Speed::token_s_max, Show::seconds},
      {"text_tokens_per_s", "tokens/s per text", &Speed::text_tokens_per_s, Show::si, "tok/s"},
      {"tokens_per_s", "tokens/s", &Speed::tokens_per_s, Show::si, "tok/s"}};
  return columns;
}

Table speed_table(const RunData& run, const std::vector<double>& token_s) {
  GenerationSpeed speed{.texts = run.number(kTexts).value_or(1),
                        .tokens = run.number(kNewTokens).value_or(static_cast<double>(token_s.size())),
                        .first_token_s = token_s.front(),
                        .prompt_tokens = run.number(kPromptTokens),
                        .setup_s = run.number(kSetupS)};
  if (token_s.size() > 1) {
    const auto others = std::span(token_s).subspan(1);
    const core::Summary times = core::summarise(others);
    speed.token_s_median = times.median;
    speed.token_s_max = times.max;
    speed.text_tokens_per_s = token_rate(token_s);
    // The first step gave every text a token.
    speed.tokens_per_s =
        ratio_of(speed.tokens - speed.texts, std::accumulate(others.begin(), others.end(), 0.0));
  }
  return speed_columns().table(std::array{speed});
}

/// Steps that read tokens in one way: their time beside the least.
struct GenerationPhase {
  std::string phase{};
  std::size_t steps = 0;
  double step_s = 0;
  std::optional<double> tokens{}, flop{}, bytes{};
  const record::Prediction* roof = nullptr;
  [[nodiscard]] std::optional<double> tokens_per_s() const { return ratio_of(tokens, step_s); }
  [[nodiscard]] std::optional<double> flop_per_s() const { return ratio_of(flop, step_s); }
  [[nodiscard]] std::optional<double> byte_per_s() const { return ratio_of(bytes, step_s); }
  [[nodiscard]] std::optional<double> roof_s() const {
    return roof == nullptr ? std::nullopt : std::optional(roof->value);
  }
  [[nodiscard]] std::optional<double> share() const { return ratio_of(roof_s(), step_s); }
  [[nodiscard]] std::string bound() const { return roof == nullptr ? "" : roof->bound; }
};

const TypedColumns<GenerationPhase>& generation_phase_columns() {
  using Phase = GenerationPhase;
  static const TypedColumns<Phase> columns = {
      {"phase", "phase", &Phase::phase},
      {"steps", "steps", &Phase::steps},
      {"step_s", "time of a step", &Phase::step_s, Show::seconds},
      {"tokens_per_s", "tokens/s", &Phase::tokens_per_s, Show::si, "tok/s", Seen::when_known},
      {"flop", "FLOP", &Phase::flop, Show::si, "flop"},
      {"bytes", "weights and cache", &Phase::bytes, Show::bytes},
      {"flop_per_s", "FLOP/s", &Phase::flop_per_s, Show::si, "flop/s"},
      {"byte_per_s", "bytes/s", &Phase::byte_per_s, Show::si, "byte/s"},
      {"roof_s", "roof", &Phase::roof_s, Show::seconds},
      {"share", "share", &Phase::share, Show::percent},
      {"bound", "bound", &Phase::bound}};
  return columns;
}

void add_phases(const RunData& run, View& view) {
  std::vector<GenerationPhase> rows;
  for (const char* phase : kGenerationPhases) {
    const bool is_step = run.setting("phase") == phase;
    const std::vector<double> seconds = run.seconds(is_step ? "step" : phase);
    if (seconds.empty()) continue;
    const std::string name = phase;
    rows.push_back({.phase = name,
                    .steps = seconds.size(),
                    .step_s = core::median(seconds),
                    .tokens = is_step ? run.number("tokens") : std::nullopt,
                    .flop = run.number(name + "_flop"),
                    .bytes = run.number(name + "_bytes"),
                    .roof = run.prediction("phase:" + name, "roof_s")});
  }
  view.add("generation_phases", "Prefill and decode", generation_phase_columns().table(rows));
}

void add_generation(const RunData& run, const ViewOptions& /*options*/, View& view) {
  const bool is_text = run.run.kind == kGeneration;
  const std::vector<double> token_s = is_text ? run.seconds(kTokenPhase) : std::vector<double>();
  if (!token_s.empty()) view.add("generation", "Generated text", speed_table(run, token_s));
  const bool is_phase = std::ranges::find(kGenerationPhases, run.setting("phase")) != kGenerationPhases.end();
  if (is_text || is_phase) add_phases(run, view);
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
             .needs = "generated text (rooflm generate -o), or steps with --phase prefill or decode"},
    .of_run = add_generation,
    .columns = [] { return columns_of(speed_columns(), generation_phase_columns()); }}};

}  // namespace

std::span<const ViewDef> views_generation() { return kGenerationViews; }

}  // namespace rooflm::report
