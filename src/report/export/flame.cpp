// Flame graphs: time by phase, layer, block and op down to the kernel, or of other programs by their ranges.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/export/export.h"
#include "report/host_stacks.h"
#include "report/kernel_names.h"
#include "report/kernels.h"

namespace rooflm::report {
namespace {

using Stack = std::vector<std::string>;
using Stacks = std::map<Stack, std::int64_t>;  ///< nanoseconds

/// Frames of folded stacks are parted by semicolons and end at the last blank: names may hold neither line
/// feeds nor semicolons.
std::string frame(std::string_view text) {
  std::string name(text.empty() ? "?" : text);
  for (char& c : name) {
    if (c == ';') c = ':';
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return name;
}

void add_scope(Stack& stack, const record::Op& op) {
  stack.push_back(frame(op.phase));
  std::string_view scope = op.scope;
  while (!scope.empty()) {
    const auto slash = scope.find('/');
    stack.push_back(frame(scope.substr(0, slash)));
    scope = slash == std::string_view::npos ? "" : scope.substr(slash + 1);
  }
  stack.push_back(frame(op.kind));
}

/// Time of each stack over all events of `trace` that keep a device busy; on processors that is ops.
Stacks stacks_of(const Trace& trace) {
  // The ranges that the program marked around each event, outermost first.
  std::vector<std::vector<const TraceRange*>> around(trace.events().size());
  for (const TraceRange& range : trace.ranges()) {
    if (!range.is_recorded) continue;
    for (const std::size_t event : range.work) around[event].push_back(&range);
  }
  Stacks stacks;
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    const TraceEvent& event = trace.events()[i];
    if (!is_device_work(event) && event.kind != "op") continue;
    Stack stack;
    if (event.op != nullptr) {
      add_scope(stack, event.op->op);
    } else {
      for (const TraceRange* range : around[i]) stack.push_back(frame(range->name));
    }
    const bool is_kernel = is_kernel_event(event);
    if (event.op == nullptr || event.kind != "op") {
      stack.push_back(frame(is_kernel ? parse_kernel_name(event.name).short_name : std::string(event.name)));
    } else {
      stack.push_back(frame(kernel_name(event.op->op)));
    }
    stacks[stack] += event.duration_ns();
  }
  return stacks;
}

std::vector<std::string> notes_of(const Trace& trace, const Stacks& stacks) {
  std::vector<std::string> notes = trace.notes();
  if (stacks.empty())
    notes.push_back(
        fmt::format("run {} has no timed ops or kernels: the graph is empty", trace.run().run.id));
  return notes;
}

/// The innermost frame of a thread that did not run: its time is apart from that of the line above.
constexpr const char* kWaits = "[waits]";

/// Samples of each stack of the host.
Stacks sampled_stacks(const RunData& run) {
  Stacks stacks;
  for (const HostStack& one : host_stacks(run).stacks) {
    Stack stack;
    for (const std::string& name : one.frames) stack.push_back(frame(name));
    if (one.is_waiting) stack.emplace_back(kWaits);
    stacks[stack] += static_cast<std::int64_t>(one.samples);
  }
  return stacks;
}

std::vector<std::string> sample_notes(const RunData& run, const Stacks& stacks) {
  if (!stacks.empty()) return {};
  return {fmt::format("run {} has no sampled stacks: the graph is empty", run.run.id)};
}

void sink_speedscope(const std::string& label, const Stacks& stacks, const char* unit, const TextSink& sink) {
  std::map<std::string, std::size_t> numbers;
  std::vector<std::string> frames, samples;
  std::vector<std::int64_t> weights;
  std::int64_t total = 0;
  for (const auto& [stack, weight] : stacks) {
    std::vector<std::size_t> sample;
    for (const std::string& name : stack) {
      const auto [entry, is_new] = numbers.try_emplace(name, frames.size());
      if (is_new) frames.push_back(fmt::format("{{\"name\": {}}}", json_quoted(name)));
      sample.push_back(entry->second);
    }
    samples.push_back(fmt::format("[{}]", fmt::join(sample, ", ")));
    weights.push_back(weight);
    total += weight;
  }
  const std::string name = json_quoted(label);
  sink(fmt::format(
      "{{\"$schema\": \"https://www.speedscope.app/file-format-schema.json\",\n\"exporter\": \"rooflm\",\n"
      "\"name\": {},\n\"activeProfileIndex\": 0,\n\"shared\": {{\"frames\": [{}]}},\n\"profiles\": "
      "[{{\"type\": \"sampled\", \"name\": {}, \"unit\": \"{}\", \"startValue\": 0, "
      "\"endValue\": {},\n\"samples\": [{}],\n\"weights\": [{}]}}]}}\n",
      name, fmt::join(frames, ",\n"), name, unit, total, fmt::join(samples, ",\n"),
      fmt::join(weights, ", ")));
}

}  // namespace

std::vector<std::string> write_folded(const ExportSource& source, const TextSink& sink) {
  const Trace trace(source.run, source.step);
  const Stacks stacks = stacks_of(trace);
  for (const auto& [stack, ns] : stacks) sink(fmt::format("{} {}\n", fmt::join(stack, ";"), ns));
  return notes_of(trace, stacks);
}

std::vector<std::string> write_speedscope(const ExportSource& source, const TextSink& sink) {
  const Trace trace(source.run, source.step);
  const Stacks stacks = stacks_of(trace);
  sink_speedscope(source.run.run.label, stacks, "nanoseconds", sink);
  return notes_of(trace, stacks);
}

std::vector<std::string> write_host_folded(const ExportSource& source, const TextSink& sink) {
  const Stacks stacks = sampled_stacks(source.run);
  for (const auto& [stack, samples] : stacks) sink(fmt::format("{} {}\n", fmt::join(stack, ";"), samples));
  return sample_notes(source.run, stacks);
}

std::vector<std::string> write_host_speedscope(const ExportSource& source, const TextSink& sink) {
  const Stacks stacks = sampled_stacks(source.run);
  sink_speedscope(source.run.run.label, stacks, "none", sink);
  return sample_notes(source.run, stacks);
}

}  // namespace rooflm::report
