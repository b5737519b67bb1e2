// The view of steps on different numbers of ranks: how much faster, and where the rest went.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/run_figures.h"
#include "report/summaries.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

/// What runs of one study have alike; how a step is split, and how large it is, may differ.
constexpr std::array kAlike = {"model",     "arch",  "layers",    "heads", "kv_heads",
                               "d_model",   "d_ff",  "vocab",     "seq",   "engine",
                               "attention", "dtype", "recompute", "phase", "clip"};
constexpr std::array kDegrees = {"dp", "cp", "tp", "pp"};

/// A number of the configuration; `otherwise` where an older record has none.
int degree_of(const RunData& run, const char* key, int otherwise = 1) {
  const std::string text = run.setting(key);
  std::from_chars(text.data(), text.data() + text.size(), otherwise);
  return otherwise;
}

int ranks_of(const RunData& run) {
  int ranks = 1;
  for (const char* key : kDegrees) ranks *= degree_of(run, key);
  return ranks;
}

/// "dp 2 zero 1"
std::string split_of(const RunData& run) {
  std::string text;
  for (const char* key : {"dp", "zero", "cp", "tp", "pp"}) {
    const int least = std::string_view(key) == "zero" ? 0 : 1;
    const int degree = degree_of(run, key, least);
    if (degree > least) text += fmt::format("{}{} {}", text.empty() ? "" : " ", key, degree);
  }
  return text;
}

/// "cuda" of "cuda:0": runs on many devices are named after the first one's.
std::string study_of(const RunData& run) {
  const std::string device = run.setting("device");
  std::string text = device.substr(0, device.find(':'));
  for (const char* key : kAlike) text += '\n' + run.setting(key);
  return text;
}

/// A run that was timed.
struct Timed {
  const RunData* run = nullptr;
  int ranks = 1;
  double step_s = 0, tokens = 0;
  [[nodiscard]] double rate() const { return tokens / step_s; }
};

/// strong: the same work for all ranks together; weak: for each.
std::string kind_of(const Timed& run, const Timed& base) {
  constexpr double kSame = 1e-9;
  if (run.ranks == base.ranks) return "";
  const double times = run.tokens / base.tokens;
  if (std::abs(times - 1) < kSame) return "strong";
  return std::abs(times - static_cast<double>(run.ranks) / base.ranks) < kSame ? "weak" : "other";
}

/// Without what only rounding makes of a time beside `step_s`.
double rounded(double seconds, double step_s) {
  constexpr double kRounding = 1e-12;
  return std::abs(seconds) < kRounding * step_s ? 0 : seconds;
}

/// What a phase takes beyond its share of the base's, were all as efficient.
std::optional<double> lost_in(const Timed& run, const Timed& base, std::string_view phase, double ideal_s) {
  const auto own_s = phase_median(*run.run, phase);
  const auto base_s = phase_median(*base.run, phase);
  if (!own_s || !base_s) return std::nullopt;
  return rounded(*own_s - *base_s * ideal_s / base.step_s, run.step_s);
}

Row row_of(const Timed& run, const Timed& base) {
  const double speedup = run.rate() / base.rate();
  const double more = static_cast<double>(run.ranks) / base.ranks;
  const double ideal_s = run.tokens / (base.rate() * more);
  Row row;
  row.set("model", run.run->setting("model"));
  row.set("ranks", static_cast<std::int64_t>(run.ranks));
  row.set("split", split_of(*run.run));
  row.set("threads", run.run->setting("threads"));
  row.set("tokens", static_cast<std::int64_t>(run.tokens));
  row.set("kind", kind_of(run, base));
  row.set("step_s", run.step_s);
  row.set("tokens_per_s", run.rate());
  row.set("speedup", speedup);
  row.set("efficiency", speedup / more);
  row.set("ideal_s", ideal_s);
  row.set("lost_s", rounded(run.step_s - ideal_s, run.step_s));
  row.set("exposed_s", cell_of(run.run->number("exposed_s")));
  for (const std::string_view phase : kPhases)
    row.set(fmt::format("{}_lost_s", phase), cell_of(lost_in(run, base, phase, ideal_s)));
  return row;
}

Table speedup_table() {
  return {.columns = {{"model", "model"},
                      {"ranks", "ranks"},
                      {"split", "split"},
                      {"threads", "threads"},
                      {"tokens", "tokens"},
                      {"kind", "scaling"},
                      {"step_s", "step", Show::seconds, "s"},
                      {"tokens_per_s", "tokens/s", Show::si, "tok/s"},
                      {"speedup", "speed-up", Show::fixed2},
                      {"efficiency", "efficiency", Show::percent},
                      {"lost_s", "lost", Show::seconds, "s"},
                      {"exposed_s", "exposed", Show::seconds, "s"},
                      {"forward_lost_s", "in forward", Show::seconds, "s"},
                      {"backward_lost_s", "backward", Show::seconds, "s"},
                      {"optimizer_lost_s", "optimizer", Show::seconds, "s"}},
          .rows = {},
          .notes = {"relative to the fewest ranks of the same model; weak: the same tokens per rank, strong: "
                    "the same tokens in total. lost: step - tokens / (tokens/s of a rank there x ranks); "
                    "exposed: exposed communication, which is also part of the phases"}};
}

void add_speedup(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  std::map<std::string, std::vector<Timed>> studies;
  for (const RunData& run : set.runs) {
    const RunFigures figures = figures_of(run);
    if (run.run.kind != "step" || !figures.step_s || !figures.tokens || *figures.step_s <= 0) continue;
    studies[study_of(run)].push_back(
        {.run = &run, .ranks = ranks_of(run), .step_s = *figures.step_s, .tokens = *figures.tokens});
  }
  Table table = speedup_table();
  Chart chart{.id = "speedup",
              .title = "Speed-up over ranks",
              .kind = ChartKind::points,
              .x = {.title = "ranks"},
              .y = {.title = "speed-up"}};
  for (auto& [name, runs] : studies) {
    std::ranges::stable_sort(runs, {}, &Timed::ranks);
    if (runs.front().ranks == runs.back().ranks) continue;
    for (const Timed& run : runs) {
      Row row = row_of(run, runs.front());
      const std::string kind = row.text("kind");
      const std::string label = fmt::format("{}{}{}", row.text("model"), kind.empty() ? "" : ", ", kind);
      series_named(chart, label)
          .points.push_back({.x = static_cast<double>(run.ranks), .y = row.number("speedup")});
      table.rows.push_back(std::move(row));
    }
  }
  if (table.rows.empty()) return;
  view.add("speedup", "Speed-up over ranks", std::move(table));
  view.add(std::move(chart));
}

constexpr std::array kSpeedupViews = {ViewDef{
    .place = 165,
    .info = {.name = "speedup",
             .title = "Strong and weak scaling",
             .note = "Steps of one model on different numbers of ranks: speed-up and efficiency in tokens "
                     "per second, and what the step lost compared with perfect scaling of the smallest job.",
             .needs = "timed steps of the same model on different numbers of ranks, each in its record",
             .is_on_page = false},
    .of_run = nullptr,
    .of_all = add_speedup}};

}  // namespace

std::span<const ViewDef> views_speedup() { return kSpeedupViews; }

}  // namespace rooflm::report
