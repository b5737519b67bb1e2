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

#include "report/model/run_figures.h"
#include "report/model/summaries.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

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
  for (const char* key : {"dp", "zero", "cp", "ep", "tp", "pp"}) {
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

/// A run beside the one on the fewest ranks.
struct Speedup : Timed {
  const Timed* base = nullptr;
  [[nodiscard]] std::string setting(const char* key) const { return run->setting(key); }
  [[nodiscard]] std::string kind() const { return kind_of(*this, *base); }
  [[nodiscard]] double speedup() const { return rate() / base->rate(); }
  [[nodiscard]] double more_ranks() const { return static_cast<double>(ranks) / base->ranks; }
  [[nodiscard]] double efficiency() const { return speedup() / more_ranks(); }
  [[nodiscard]] double ideal_s() const { return tokens / (base->rate() * more_ranks()); }
  [[nodiscard]] double lost_s() const { return rounded(step_s - ideal_s(), step_s); }
  [[nodiscard]] std::optional<double> exposed_s() const { return run->number("exposed_s"); }
};

const TypedColumns<Speedup>& speedup_columns() {
  static const TypedColumns<Speedup> columns = [] {
    const auto setting = [](const char* key) { return [key](const Speedup& of) { return of.setting(key); }; };
    TypedColumns<Speedup> all = {
        {"model", "model", setting("model")},
        {"ranks", "ranks", &Speedup::ranks},
        {"split", "split", [](const Speedup& of) { return split_of(*of.run); }},
        {"threads", "threads", setting("threads")},
        {"tokens", "tokens", [](const Speedup& of) { return static_cast<std::int64_t>(of.tokens); }},
        {"kind", "scaling", &Speedup::kind},
        {"step_s", "step", &Speedup::step_s, Show::seconds},
        {"tokens_per_s", "tokens/s", &Speedup::rate, Show::si, "tok/s"},
        {"speedup", "speed-up", &Speedup::speedup, Show::fixed2},
        {"efficiency", "efficiency", &Speedup::efficiency, Show::percent},
        {"ideal_s", &Speedup::ideal_s},
        {"lost_s", "lost", &Speedup::lost_s, Show::seconds},
        {"exposed_s", "exposed", &Speedup::exposed_s, Show::seconds}};
    for (const std::string_view phase : kPhases) {
      const std::string key = fmt::format("{}_lost_s", phase);
      const std::string title = phase == kPhases.front() ? fmt::format("in {}", phase) : std::string(phase);
      all.add({key.c_str(), title.c_str(),
               [phase](const Speedup& of) { return lost_in(of, *of.base, phase, of.ideal_s()); },
               Show::seconds});
    }
    return all;
  }();
  return columns;
}

void add_speedup(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  std::map<std::string, std::vector<Timed>> studies;
  for (const RunData& run : set.runs) {
    const RunFigures figures = figures_of(run);
    if (run.run.kind != "step" || !figures.step_s || !figures.tokens || *figures.step_s <= 0) continue;
    studies[study_of(run)].push_back(
        {.run = &run, .ranks = ranks_of(run), .step_s = *figures.step_s, .tokens = *figures.tokens});
  }
  std::vector<Speedup> rows;
  Chart chart{.id = "speedup",
              .title = "Speed-up over ranks",
              .kind = ChartKind::points,
              .x = {.title = "ranks"},
              .y = {.title = "speed-up"}};
  for (auto& [name, runs] : studies) {
    std::ranges::stable_sort(runs, {}, &Timed::ranks);
    if (runs.front().ranks == runs.back().ranks) continue;
    for (const Timed& run : runs) {
      const Speedup& row = rows.emplace_back(Speedup{run, &runs.front()});
      const std::string kind = row.kind();
      const std::string label = row.setting("model") + (kind.empty() ? "" : ", ") + kind;
      series_named(chart, label).points.push_back({.x = static_cast<double>(run.ranks), .y = row.speedup()});
    }
  }
  if (rows.empty()) return;
  Table table = speedup_columns().table(rows);
  table.notes = {
      "relative to the fewest ranks of the same model; weak: the same tokens per rank, strong: "
      "the same tokens in total. lost: step - tokens / (tokens/s of a rank there x ranks); "
      "exposed: exposed communication, which is also part of the phases"};
  view.add("speedup", "Speed-up over ranks", std::move(table));
  view.add(std::move(chart));
}

constexpr std::array kSpeedupViews = {ViewDef{
    .place = 165,
    .info = {.name = "speedup",
             .title = "Strong and weak scaling",
             .note = "Steps of one model on different numbers of ranks: speed-up and efficiency in tokens "
                     "per second, and what the step lost compared with perfect scaling of the smallest job.",
             .needs = "timed steps of the same model on different numbers of ranks, each in its record"},
    .of_all = add_speedup,
    .columns = [] { return columns_of(speedup_columns()); }}};

}  // namespace

std::span<const ViewDef> views_speedup() { return kSpeedupViews; }

}  // namespace rooflm::report
