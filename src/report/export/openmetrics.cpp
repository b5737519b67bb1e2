// Figures of the step as OpenMetrics text, for Prometheus and what reads its format.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/statistics.h"
#include "report/export/export.h"
#include "report/model/run_figures.h"

namespace rooflm::report {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) >= ' ') {
      out += c;
    }
  }
  return out;
}

class MetricsWriter {
 public:
  explicit MetricsWriter(const TextSink& sink) : sink_(sink) {}

  /// A gauge; its name ends in its unit where it has one.
  void family(std::string_view name, std::string_view unit, std::string_view help) {
    sink_(fmt::format("# TYPE rooflm_{} gauge\n", name));
    if (!unit.empty()) sink_(fmt::format("# UNIT rooflm_{} {}\n", name, unit));
    sink_(fmt::format("# HELP rooflm_{} {}\n", name, escaped(help)));
  }
  void sample(std::string_view name, const std::string& labels, double value) {
    sink_(fmt::format("rooflm_{}{{{}}} {}\n", name, labels,
                      std::isfinite(value) ? fmt::format("{}", value) : "NaN"));
  }
  /// A sample that is a figure of the step.
  void measured(std::string_view name, const std::string& labels, double value) {
    sample(name, labels, value);
    ++figures_;
  }
  void gauge(std::string_view name, std::string_view unit, std::string_view help, const std::string& labels,
             const std::optional<double>& value) {
    if (!value) return;
    family(name, unit, help);
    measured(name, labels, *value);
  }
  [[nodiscard]] std::size_t figures() const { return figures_; }

 private:
  const TextSink& sink_;
  std::size_t figures_ = 0;
};

std::map<std::string, double> peak_of_devices(const RunData& run) {
  std::map<std::string, double> peaks;
  for (const record::MemoryEvent& event : run.memory_events) {
    double& peak = peaks[event.device];
    peak = std::max(peak, static_cast<double>(event.live_bytes));
  }
  return peaks;
}

}  // namespace

std::vector<std::string> write_openmetrics(const ExportSource& source, const TextSink& sink) {
  const RunData& run = source.run;
  const RunFigures figures = figures_of(run);
  MetricsWriter out(sink);
  const std::string labels = fmt::format("run=\"{}\"", escaped(run.run.label));
  // A gauge, not OpenMetrics' type "info": readers of Prometheus' older text know only the former.
  out.family("run_info", "", "What ran: always 1.");
  std::string about =
      labels + fmt::format(",kind=\"{}\",status=\"{}\"", escaped(run.run.kind), escaped(run.run.status));
  for (const char* key : {"model", "device", "dtype", "engine", "attention"}) {
    if (!run.setting(key).empty()) about += fmt::format(",{}=\"{}\"", key, escaped(run.setting(key)));
  }
  out.sample("run_info", about, 1);
  out.gauge("step_seconds", "seconds", "Median time of a whole step without observer.", labels,
            figures.step_s);
  std::map<std::string, std::vector<double>> phases;
  for (const record::Sample& sample : run.samples) {
    if (sample.kind == "plain" && sample.phase != "step") phases[sample.phase].push_back(sample.seconds);
  }
  if (!phases.empty()) out.family("phase_seconds", "seconds", "Median time of a phase of those steps.");
  for (const auto& [phase, seconds] : phases) {
    out.measured("phase_seconds", labels + fmt::format(",phase=\"{}\"", escaped(phase)),
                 core::median(seconds));
  }
  out.gauge("tokens_per_second", "", "Tokens of a step / its median time.", labels, figures.tokens_per_s);
  out.gauge("model_flop_per_second", "", "(6 N + 12 L C T) tokens / median time of a step.", labels,
            figures.model_flop_per_s);
  const double ranks = ranks_of_step(run);
  std::string peak = "What MFU divides by: " + figures.peak;
  if (ranks > 1) peak += fmt::format(", of {:.0f} ranks", ranks);
  out.gauge("peak_flop_per_second", "", peak, labels,
            figures.peak_flop_per_s ? std::optional(*figures.peak_flop_per_s * ranks) : std::nullopt);
  out.gauge("mfu_ratio", "ratio", "Model FLOP utilization (PaLM, appendix B).", labels, figures.mfu);
  out.gauge("roof_seconds", "seconds", "Least time of the step by the ceilings.", labels, figures.roof_s);
  const std::map<std::string, double> peaks = peak_of_devices(run);
  if (peaks.size() < 2) {
    out.gauge("peak_bytes", "bytes", "Peak memory of the step.", labels, figures.peak_bytes);
  } else {
    out.family("peak_bytes", "bytes", "Peak memory of the step, by device.");
    for (const auto& [device, bytes] : peaks)
      out.measured("peak_bytes", labels + fmt::format(",device=\"{}\"", escaped(device)), bytes);
  }
  out.gauge("power_watts", "watts", "Mean power of the device while steps ran.", labels,
            run.number("power_w"));
  out.gauge("step_energy_joules", "joules", "Energy of one step.", labels, run.number("energy_j"));
  sink("# EOF\n");
  std::vector<std::string> notes;
  if (out.figures() == 0)
    notes.push_back(fmt::format("run {} has no figures of a step: no step was timed", run.run.id));
  if (source.scope.step) notes.emplace_back("figures are of all steps: --step changes nothing");
  return notes;
}

}  // namespace rooflm::report
