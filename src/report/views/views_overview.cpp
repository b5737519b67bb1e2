// What a run is and how fast; the machine.
#include <fmt/format.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/units.h"
#include "report/findings/headline.h"
#include "report/model/covered.h"
#include "report/model/run_figures.h"
#include "report/model/summaries.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

/// What, its value as shown, and the number with its unit for programs.
struct Line {
  std::string what, shown;
  std::optional<double> value{};
  std::string unit{};
};

const TypedColumns<Line>& line_columns() {
  static const TypedColumns<Line> columns = {
      {"what", "what", &Line::what},
      {"shown", "value", &Line::shown},
      {"value", &Line::value},
      {"unit", [](const Line& line) { return line.value ? Cell(line.unit) : Cell(); }}};
  return columns;
}

struct Lines {
  std::vector<Line> all{};

  void add(const char* what, const std::string& shown) {
    if (!shown.empty()) all.push_back({.what = what, .shown = shown});
  }
  void add(const char* what, const std::optional<double>& value, const char* unit, Show show,
           const std::string& more = "") {
    if (!value) return;
    std::string shown = format_cell(Cell(*value), show);
    if (show == Show::si) shown += fmt::format("{}{}", shown.find(' ') == std::string::npos ? " " : "", unit);
    all.push_back({.what = what, .shown = shown + more, .value = value, .unit = unit});
  }
};

/// "" for a program that is not ours.
std::string shape_of(const record::Config& config) {
  if (config.find("model") == nullptr) return "";
  return fmt::format("{} ({}): {}, C={} F={} H={} K={} V={}, {} parameters", config.text("model"),
                     config.text("arch"), core::format_count(config.integer("layers").value_or(0), "layer"),
                     config.text("d_model"), config.text("d_ff"), config.text("heads"),
                     config.text("kv_heads"), config.text("vocab"),
                     core::format_si(config.number("params").value_or(0)));
}

std::string setting_of(const record::Config& config) {
  if (config.find("engine") == nullptr) return "";
  const std::string recompute = config.text("recompute");
  return fmt::format("{} on {}, {} attention, {}, B={} T={}, {}, recompute {}, {}", config.text("engine"),
                     config.text("device"), config.text("attention"), config.text("dtype"),
                     config.text("batch"), config.text("seq"),
                     core::format_count(config.integer("grad_accum").value_or(1), "micro-batch"),
                     recompute.empty() ? "none" : recompute,
                     core::format_count(config.integer("threads").value_or(0), "thread"));
}

std::string interval_of(const RunFigures& figures, std::size_t samples) {
  return fmt::format(" ({} to {}, {} steps)", core::format_seconds(figures.step_low_s.value_or(0)),
                     core::format_seconds(figures.step_high_s.value_or(0)), samples);
}

/// What the FLOP of all ranks are divided by: "97.9 Gflop/s", "(2 ranks x 97.9 Gflop/s)".
std::string peak_of_ranks(const RunData& run, double peak_flop_per_s) {
  const std::string peak = core::format_si(peak_flop_per_s) + "flop/s";
  const double ranks = ranks_of_step(run);
  return ranks > 1 ? fmt::format("({:.0f} ranks x {})", ranks, peak) : peak;
}

/// "backward feed_forward, 31.2% of the time in kernels"; "" without times.
std::string largest_block(const GlanceList& time) {
  if (time.parts.empty()) return "";
  const GlancePart& largest = time.parts.front();
  return fmt::format("{}, {:.1f}% of the time in kernels", largest.name, 100 * largest.share.value_or(0));
}

void add_overview(const RunData& run, const ViewOptions& options, View& view) {
  const Findings found =
      findings_of(run, options.set == nullptr ? advise(run, 1) : advise(*options.set, run, 1));
  const RunFigures figures = figures_of(run);
  Lines lines;
  lines.add("run", run.run.label);
  lines.add("status", run.run.status);
  lines.add("model", shape_of(run.run.config));
  lines.add("setting", setting_of(run.run.config));
  lines.add("device time", covered_text(run));
  lines.add("in short", found.headline);
  const std::size_t samples = run.seconds(kStep).size();
  lines.add("step", figures.step_s, "s", Show::seconds, interval_of(figures, samples));
  lines.add("traced step", figures.traced_step_s, "s", Show::seconds,
            fmt::format(", median of {}, including the cost of recording", figures.traced_steps));
  lines.add("steps", run.text("steps"));
  lines.add("slow steps", run.text("slow_steps"));
  lines.add("tokens per second", figures.tokens_per_s, "tok/s", Show::si);
  lines.add("model FLOP rate", figures.model_flop_per_s, "flop/s", Show::si);
  lines.add("MFU", figures.mfu, "share", Show::percent,
            fmt::format(" = ({}N + 12 L C T) tokens/s / {} ({})", run.setting("lora").empty() ? 6 : 4,
                        peak_of_ranks(run, figures.peak_flop_per_s.value_or(0)), figures.peak));
  if (const std::string why = why_no_peak(run); !why.empty())
    lines.add("MFU", "-: the matmul rate of this machine is not usable as a peak: " + why);
  lines.add("MFU by datasheet", figures.datasheet_mfu, "share", Show::percent,
            fmt::format(" of the manufacturer's dense peak, {}",
                        peak_of_ranks(run, figures.datasheet_flop_per_s.value_or(0))));
  lines.add("matmul rate", figures.matmul_share, "share", Show::percent,
            " of the peak that MFU divides by: matmul FLOP, op by op, over the whole step");
  lines.add("roof of the step", figures.roof_s, "s", Show::seconds,
            figures.roof_share ? fmt::format(", {:.1f}% of the step", 100 * *figures.roof_share) : "");
  lines.add("roof leaves out", run.text("roof_leaves_out"));
  lines.add("FLOP and bytes", run.text("priced_by"));
  lines.add("largest block", largest_block(found.glance.time));
  lines.add("bound by", format_parts(found.glance.bound, 4));
  lines.add("device", format_parts(found.glance.idle, 4));
  if (!found.advice.empty()) {
    const Advice& first = found.advice.front();
    lines.add("to fix first",
              fmt::format("{}: at most {}", first.subject, core::format_seconds(first.gain_s)));
  }
  lines.add("peak memory", figures.peak_bytes, "byte", Show::bytes);
  lines.add("loss", run.number("loss"), "nats", Show::plain);
  lines.add("stop reason", run.text("stop_reason"));
  lines.add("drift", run.text("drift"));
  lines.add("load", run.text("others_share"));
  lines.add("sharing", run.text("device_ranks"));
  lines.add("fp8", run.text("fp8_matmuls"));
  // The clock is the host's: it says nothing of a GPU.
  if (!is_on_gpu(run)) lines.add("clock", run.text("clock_note"));
  lines.add("observer", run.text("observer_cost"));
  lines.add("tracing", run.text(run.fact("tracing") == nullptr ? "tracing_cost" : "tracing"));
  view.add("overview", "Run", line_columns().table(lines.all));
}

struct MachineLine : record::Environment {
  std::string file{};  ///< "" where there is one record
};

const TypedColumns<MachineLine>& machine_columns() {
  static const TypedColumns<MachineLine> columns = {
      {"file", "file", [](const MachineLine& line) { return known_text(line.file); }, Seen::when_known},
      {"key", "machine", &MachineLine::key},
      {"value", "as found", &MachineLine::value},
      {"unit", "unit", &MachineLine::unit}};
  return columns;
}

void add_machine(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  std::vector<MachineLine> lines;
  for (const RecordFile& file : set.files) {
    for (const record::Environment& entry : file.environment)
      lines.push_back({{entry}, set.files.size() > 1 ? file.name : ""});
  }
  view.add("overview.machine", "Machine", machine_columns().table(lines));
}

constexpr std::array kOverviewViews = {
    ViewDef{.place = 10,
            .info = {.name = "overview",
                     .title = "Overview",
                     .note = "Step times are wall-clock medians without an observer; those of traced steps "
                             "include its cost.",
                     .needs = "a run",
                     .is_on_page = true,
                     .warns_of_load = false},
            .of_run = add_overview,
            .of_all = add_machine,
            .columns = [] { return columns_of(line_columns(), machine_columns()); }},
};

}  // namespace

std::span<const ViewDef> views_overview() { return kOverviewViews; }

}  // namespace rooflm::report
