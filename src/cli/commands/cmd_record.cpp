// rooflm record: any CUDA program, watched from outside.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "backends/registry.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/options/steps_option.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/recorded_runs.h"
#include "cli/recording.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/names.h"
#include "core/printable.h"
#include "core/system/child_process.h"
#include "measure/gauge_sampler.h"

namespace rooflm::cli {
namespace {

struct RecordOptions {
  std::vector<std::string> command;
  std::string output = "recorded.rooflm", capture, skip = "0", steps, duration, most, calls = "all",
              pytorch = "on", trace_every = "auto", mark_every = "16", stacks = "both,100,1%",
              steps_by = "auto";
  bool overwrite = false, dry_run = false, sample_power = false;
};

void require_one_of(const char* option, const std::string& value, const std::vector<std::string>& known) {
  for (const std::string& one : known) {
    if (one == value) return;
  }
  throw core::UsageError(core::unknown_name(option, value, known));
}

/// What no integer of the recorder holds is no limit, which it writes as 0.
std::uint64_t limit_of(double value) {
  constexpr double kMost = 0x1p53;
  return value < kMost ? static_cast<std::uint64_t>(std::max(1.0, value)) : 0;
}

/// "100", "100,python" or "100,native,0.02" of --sample-stacks; "" of off. Rate, kind and budget come in any
/// order.
std::string stacks_of(const std::string& text) {
  constexpr double kMostHz = 1000;
  constexpr double kUsualHz = 100;
  constexpr double kMostPercent = 100;
  if (text == "off") return "";
  if (text.empty()) throw core::UsageError("--sample-stacks: both, python, native, off or a rate is missing");
  double hertz = kUsualHz;
  std::string kind, budget, only;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "python" || word == "native") {
      kind = "," + word;
    } else if (word.ends_with('%')) {
      const double percent = parse_number("--sample-stacks", word.substr(0, word.size() - 1), 0.01);
      if (percent > kMostPercent)
        throw core::UsageError(fmt::format("--sample-stacks {}: at most {} %", text, kMostPercent));
      budget = fmt::format(",{}", percent / kMostPercent);
    } else if (word == "running") {
      only = ",running";
    } else if (word != "both") {
      hertz = parse_number("--sample-stacks", word, 0.1);
    }
  }
  if (hertz > kMostHz) throw core::UsageError(fmt::format("--sample-stacks {}: at most {}", text, kMostHz));
  return fmt::format("{}{}{}{}", hertz, kind, only, budget);
}

RecordWishes wishes_of(const RecordOptions& options, const RecordName& name) {
  require_one_of("--calls", options.calls, {"all", "launches", "none"});
  require_one_of("--pytorch", options.pytorch, {"on", "forward", "off"});
  RecordWishes wishes{.capture = options.capture, .calls = options.calls, .pytorch = options.pytorch};
  wishes.skip = static_cast<std::uint64_t>(parse_integer("--skip", options.skip, 0));
  if (!options.steps.empty())
    wishes.steps = static_cast<std::uint64_t>(parse_integer("--steps", options.steps, 1));
  if (!options.duration.empty()) {
    wishes.duration_ms = limit_of(1e3 * parse_number("--duration", options.duration, 0.001));
  }
  if (!options.most.empty()) wishes.most_bytes = limit_of(parse_bytes("--max-size", options.most));
  if (options.trace_every != "auto") {
    if (options.trace_every.find_first_not_of("0123456789") != std::string::npos)
      throw core::UsageError(
          fmt::format("--trace-every {}: auto, or a number of steps", core::printable(options.trace_every)));
    wishes.trace_every = static_cast<std::uint64_t>(parse_integer("--trace-every", options.trace_every, 1));
  }
  wishes.mark_every = static_cast<std::uint64_t>(parse_integer("--mark-every", options.mark_every, 1));
  wishes.stacks = stacks_of(options.stacks);
  wishes.keep = name.variables();
  return wishes;
}

/// Why there is no record.
std::string explain_nothing(const std::string& program, const RecordWishes& wishes,
                            const RecordedSummary& summary) {
  if (summary.was_too_short)
    return "the program ended abnormally before anything was written, which happens a twentieth of a second "
           "after it begins";
  if (summary.saw_process && !wishes.capture.empty()) {
    return fmt::format("no range '{}' was opened{}", core::printable(wishes.capture),
                       wishes.skip == 0 ? "" : fmt::format(" after the first {} (--skip)", wishes.skip));
  }
  if (summary.saw_process && wishes.skip > 0) {
    return fmt::format("the program did no step after the first {} (--skip)", wishes.skip);
  }
  if (summary.saw_device) return "CUDA was initialized, but nothing ran on a device while it was recorded";
  if (is_static_program(program)) {
    return fmt::format("'{}' is statically linked: nothing can be loaded into it", program);
  }
  return "no process initialized CUDA or opened a range (or it set CUDA_INJECTION64_PATH by itself)";
}

/// Asks the first device for power, clocks and temperature while it lives.
class PowerWatch {
 public:
  explicit PowerWatch(std::chrono::steady_clock::time_point epoch) {
    constexpr const char* kDevice = "cuda:0";
    backends::FoundGauges found = backends::provider_of(kDevice).gauges(kDevice);
    if (found.gauges == nullptr) {
      note("record: --sample-power: {}",
           found.missing.empty() ? "the device reports nothing" : found.missing);
    } else {
      sampler_ = std::make_unique<measure::GaugeSampler>(std::move(found.gauges), kDevice, epoch);
    }
  }
  std::vector<record::Gauge> take() {
    return sampler_ == nullptr ? std::vector<record::Gauge>() : sampler_->take();
  }

 private:
  std::unique_ptr<measure::GaugeSampler> sampler_;
};

core::ChildEnd run_record(const RecordOptions& options) {
  if (options.command.empty()) {
    throw core::UsageError("record: name a program: rooflm record [options] -- python3 train.py");
  }
  require_file({"-o", options.output});
  const RecordName name(options.output);
  const RecordWishes wishes = wishes_of(options, name);
  const foreign::StepsBy steps_by = foreign::StepsBy::parse(options.steps_by);
  if (!name.has_places()) check_outputs({{"-o", options.output}}, {}, options.overwrite);
  if (options.dry_run) {
    show_dry_run(fmt::format("run and record {}", fmt::join(options.command, " ")), {{"-o", options.output}});
    return {};
  }
  Recording recording(options.output, wishes);
  const auto epoch = std::chrono::steady_clock::now();
  core::ChildProcess program(options.command, recording.environment());
  // Its thread comes after the program: it takes none of the signals that are passed on.
  std::optional<PowerWatch> power;
  if (options.sample_power) power.emplace(epoch);
  const core::ChildEnd end = program.wait();
  try {
    constexpr std::chrono::seconds kPatience{5};
    std::size_t still_writing = 0;
    const auto streams = recording.streams(kPatience, still_writing);
    if (still_writing > 0) note("record: {} processes still run: their records end here", still_writing);
    RecordedProgram recorded{.command = fmt::format("rooflm record -- {}", fmt::join(options.command, " ")),
                             .process = program.number(),
                             .end = end,
                             .epoch_ns = std::chrono::nanoseconds(epoch.time_since_epoch()).count(),
                             .steps_by = steps_by};
    if (power) recorded.gauges = power->take();
    const RecordedSummary summary = write_recorded(streams, name, std::move(recorded), options.overwrite);
    if (summary.processes == 0 && !summary.has_explained) {
      note("record: nothing was recorded: {}", explain_nothing(options.command.front(), wishes, summary));
    }
  } catch (const core::Error& error) {
    recording.keep();
    note("record: {}; what was recorded is in {}: rooflm import FILE.stream -o FILE.rooflm", error.what(),
         recording.folder().string());
  }
  return end;
}

/// As the program ended, when everything is written and cleaned up.
int end_with(const core::ChildEnd& end) {
  flush_out();
  if (end.signal != 0) core::end_as(end.signal);
  return end.code;
}

}  // namespace

Body declare_record(CommandLine& line) {
  auto options = std::make_shared<RecordOptions>();
  line.add_rest(options->command);
  line.add_option("-o,--output", options->output,
                  "Record to write; %p in its name stands for the process ID, %q{NAME} for an environment "
                  "variable: one record per process")
      .type_name("FILE.rooflm")
      .show_default();
  line.add_flag("--overwrite", options->overwrite, "Overwrite an existing record");
  add_dry_run(line, options->dry_run, "");
  line.add_option("--capture-range", options->capture, "Record only while a range of this name is open")
      .type_name("NAME");
  line.add_option("--skip", options->skip, "Steps, or ranges of --capture-range, before recording begins")
      .type_name("N")
      .show_default();
  line.add_option("--steps", options->steps, "Steps, or ranges, to record (default: all)").type_name("N");
  add_steps_by(line, options->steps_by);
  line.add_option("--duration", options->duration, "Seconds to record (default: until the program ends)")
      .type_name("S");
  line.add_option("--max-size", options->most,
                  "Bytes that one process may write, such as 2GB (default: no limit)")
      .type_name("BYTES");
  line.add_option(
          "--calls", options->calls,
          "CUDA calls to record: all that launch work, wait or allocate memory; launches and copies; none")
      .type_name("all|launches|none")
      .show_default();
  line.add_flag("--sample-power", options->sample_power,
                "Power, clocks and temperature of cuda:0, ten times a second");
  line.add_option(
          "--pytorch", options->pytorch,
          "Mark PyTorch's modules, backward pass and optimizers; forward: no modules in the backward pass")
      .type_name("on|forward|off")
      .show_default();
  line.add_option(
          "--trace-every", options->trace_every,
          "PyTorch: trace the device in the first twelve steps, then in two of every N (1: in all), or so "
          "rarely that it adds 0.2 % (auto); the other steps are only timed, and not slowed down")
      .type_name("N|auto")
      .show_default();
  line.add_option("--mark-every", options->mark_every,
                  "Mark PyTorch modules in the first four steps and every N-th after; the others launch the "
                  "same kernels and take their labels from these")
      .type_name("N")
      .show_default();
  line.add_option(
          "--sample-stacks", options->stacks,
          "Stacks to sample, at HZ per second: native and Python frames, or only one of them; running: skip "
          "waiting threads; PERCENT: share of a thread's time that sampling may take before it slows down")
      .type_name("both|python|native|off[,running][,HZ][,PERCENT%]")
      .show_default();
  line.footer(
      "rooflm record [OPTIONS] -- CMD...\n\n"
      "The program's input, output, signals and exit code pass through unchanged. GPU\n"
      "work is written while the program runs: if it crashes or is killed, the record\n"
      "lacks only its last second. Each process that used CUDA is a run of the record.\n"
      "A message says what counts as a step (--steps-by).\n\n"
      "Example: rooflm record -o run.rooflm --skip 3 --steps 10 -- python3 train.py\n"
      "         rooflm report run.rooflm");
  return [options, &line] {
    if (options->capture.empty() && line.was_given("--capture-range")) {
      throw core::UsageError("--capture-range: the name of a range is missing");
    }
    return end_with(run_record(*options));
  };
}

}  // namespace rooflm::cli
