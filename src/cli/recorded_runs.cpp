// Turns the streams of a program's processes into records.
#include "cli/recorded_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "cli/foreign_roofs.h"
#include "cli/output.h"
#include "core/error.h"
#include "core/printable.h"
#include "foreign/recorded.h"
#include "record/writer.h"

namespace rooflm::cli {
namespace {

using foreign::RecordedProcess;

/// The program's name in "/usr/bin/python3 train.py --lr 3": "train.py".
std::string short_name(const std::string& command) {
  const auto base = [](std::string_view word) { return std::string(word.substr(word.rfind('/') + 1)); };
  std::size_t at = 0;
  std::string name;
  bool is_interpreter = true;
  while (is_interpreter && at < command.size()) {
    const std::size_t end = std::min(command.find(' ', at), command.size());
    const std::string word = command.substr(at, end - at);
    at = end + 1;
    if (!name.empty() && word.starts_with('-')) break;
    const bool was_first = name.empty();
    name = base(word);
    is_interpreter = was_first && name.starts_with("python");
  }
  return name.empty() ? "program" : core::printable(name);
}

std::string fact_of(const RecordedProcess& process, const std::string& key) {
  const auto found = process.facts.find(key);
  return found == process.facts.end() ? "" : found->second;
}

std::string describe(const core::ChildEnd& end) {
  if (end.signal == 0) return fmt::format("exit code {}", end.code);
  const char* name = sigabbrev_np(end.signal);
  return fmt::format("ended by SIG{}", name == nullptr ? std::to_string(end.signal) : name);
}

void set_label(RecordedProcess& process, bool is_only) {
  process.run.label = short_name(fact_of(process, "command"));
  const std::string rank = fact_of(process, "environment RANK");
  if (!rank.empty()) {
    process.run.label += ", rank " + core::printable(rank);
  } else if (!is_only) {
    process.run.label += fmt::format(", process {}", process.process);
  }
}

void add_facts(RecordedProcess& process, int main_process, const core::ChildEnd& end) {
  foreign::ForeignRun& run = process.run;
  const bool is_main = process.process == main_process;
  const bool failed = is_main && (end.signal != 0 || end.code != 0);
  run.status = failed ? "failed" : process.has_ended ? "success" : "interrupted";
  std::string how = is_main ? describe(end) : process.has_ended ? "" : "it did not exit normally";
  if (!process.has_ended) how += "; what it did in its last second may be missing";
  if (is_main || !how.empty()) {
    run.add_fact({.key = "program_end", .value = {}, .unit = "", .text = how});
  }
  run.add_fact({.key = "process",
                .value = static_cast<double>(process.process),
                .unit = "",
                .text = core::printable(fact_of(process, "command"))});
  const std::string cupti = fact_of(process, "cupti");
  run.add_fact({.key = "traced_kernels",
                .value = static_cast<double>(process.kernels),
                .unit = "",
                .text = cupti.empty() ? "" : "CUPTI " + cupti});
  run.add_fact({.key = "trace_lost", .value = static_cast<double>(process.dropped), .unit = "", .text = ""});
  if (!process.problem.empty()) {
    run.add_fact({.key = "tracing", .value = {}, .unit = "", .text = process.problem});
  }
  // What PyTorch's caching allocator gave out and held at most, on the run's device and on others that it
  // used.
  for (const auto& [key, value] : process.facts) {
    for (const std::string what : {"allocated", "reserved"}) {
      const std::string prefix = "torch " + what + " ";
      if (!key.starts_with(prefix)) continue;
      const std::string device = core::printable(key.substr(prefix.size()));
      const double bytes = std::strtod(value.c_str(), nullptr);
      if (device != run.device() && bytes == 0) continue;
      run.add_fact({.key = "torch_" + what + "_bytes" + (device == run.device() ? "" : " " + device),
                    .value = bytes,
                    .unit = "byte",
                    .text = device});
    }
  }
  const std::string torch = fact_of(process, "torch");
  if (!torch.empty()) run.add_environment("torch", core::printable(torch));
}

struct Written {
  std::size_t kernels = 0;
  std::int64_t dropped = 0;
  std::vector<std::string> notes{};
};

Written write_runs(record::Writer& writer, std::vector<RecordedProcess*>& processes,
                   RecordedProgram& program) {
  Written written;
  auto& [kernels, dropped, notes] = written;
  std::set<std::string> devices;  // whose ceilings are written
  for (RecordedProcess* process : processes) {
    for (const record::Ceiling& ceiling : add_roofs(process->run, true)) {
      if (!devices.contains(ceiling.device)) writer.add(ceiling);
    }
    devices.insert(process->run.device());
    set_label(*process, processes.size() == 1);
    add_facts(*process, program.process, program.end);
    process->run.steps_by = program.steps_by;
    // Of the device, whoever used it: once.
    if (process->kernels > 0) {
      for (record::Gauge& gauge : std::exchange(program.gauges, {})) process->run.add_gauge(std::move(gauge));
    }
    kernels += process->kernels;
    dropped += process->dropped;
    std::vector<std::string> said = process->run.write(writer);
    if (processes.size() > 1) said.front() = process->run.label + ": " + said.front();
    if (!process->problem.empty()) said.push_back(process->problem);
    if (!process->has_ended)
      said.emplace_back("the program did not exit normally: its last second may be missing");
    notes.insert(notes.end(), said.begin(), said.end());
  }
  return written;
}

/// A record of which a part is missing is none: the streams have everything.
void write_one(const std::string& path, std::vector<RecordedProcess*>& processes, RecordedProgram& program,
               bool overwrite) {
  record::Writer writer(path, program.command, overwrite);
  Written written;
  try {
    written = write_runs(writer, processes, program);
    writer.finish();
  } catch (const core::Error&) {
    writer.discard();
    throw;
  }
  const auto& [kernels, dropped, notes] = written;
  note("record: {}: {}, of them {} kernels; {} lost", path, notes.front(), kernels, dropped);
  constexpr std::size_t kMostNotes = 30;
  for (std::size_t i = 1; i < std::min(notes.size(), kMostNotes); ++i) note("record: {}", notes[i]);
  if (notes.size() > kMostNotes)
    note("record: {} more lines: rooflm report {}", notes.size() - kMostNotes, path);
}

}  // namespace

RecordName::RecordName(std::string pattern) : pattern_(std::move(pattern)) {
  for (std::size_t at = pattern_.find('%'); at != std::string::npos; at = pattern_.find('%', at + 1)) {
    if (pattern_.compare(at, 2, "%p") == 0) {
      parts_.push_back({.begin = at, .end = at + 2, .variable = ""});
      continue;
    }
    const std::size_t end = pattern_.find('}', at);
    if (pattern_.compare(at, 3, "%q{") != 0 || end == std::string::npos || end == at + 3) {
      throw core::UsageError(fmt::format("record: -o '{}': %p is the process, %q{{NAME}} a variable of it",
                                         core::printable(pattern_)));
    }
    parts_.push_back({.begin = at, .end = end + 1, .variable = pattern_.substr(at + 3, end - at - 3)});
  }
}

std::vector<std::string> RecordName::variables() const {
  std::vector<std::string> names;
  for (const Part& part : parts_) {
    if (!part.variable.empty()) names.push_back(part.variable);
  }
  return names;
}

RecordedSummary write_recorded(const std::vector<std::filesystem::path>& streams, const RecordName& name,
                               RecordedProgram program, bool overwrite) {
  RecordedSummary summary;
  std::vector<RecordedProcess> all;
  for (const std::filesystem::path& stream : streams) {
    try {
      RecordedProcess process = foreign::read_stream(stream, program.epoch_ns);
      summary.saw_process = true;
      summary.saw_device = summary.saw_device || process.has_device;
      // A process that used CUDA and left no events gets a record only if it did not exit normally.
      const bool is_cut_off = process.has_device && !process.has_ended;
      if (process.run.is_empty() && !is_cut_off) {
        summary.was_too_short = summary.was_too_short || !process.has_ended;
        if (process.problem.empty()) continue;
        note("record: process {}: {}", process.process, process.problem);
        summary.has_explained = true;
        continue;
      }
      all.push_back(std::move(process));
    } catch (const core::Error& error) {
      note("record: {}", error.what());
    }
  }
  // Helpers, such as those that compile kernels, ran Python and did nothing else.
  const bool has_others =
      std::ranges::any_of(all, [](const RecordedProcess& one) { return !one.only_samples; });
  if (has_others) std::erase_if(all, [](const RecordedProcess& one) { return one.only_samples; });
  std::map<std::string, std::vector<RecordedProcess*>> files;
  for (RecordedProcess& process : all) {
    const auto value_of = [&](const std::string& variable) {
      const std::string value = fact_of(process, "environment " + variable);
      return value.empty() || value.find('/') != std::string::npos ? "unset" : value;
    };
    files[name.of(process.process, value_of)].push_back(&process);
  }
  for (auto& [path, processes] : files) write_one(path, processes, program, overwrite);
  summary.processes = all.size();
  return summary;
}

}  // namespace rooflm::cli
