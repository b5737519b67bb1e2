// Flame graphs: time by phase, layer, block and op down to the kernel, or of other programs by their ranges.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/export/export.h"
#include "report/model/host_stacks.h"
#include "report/model/kernel_names.h"
#include "report/model/kernels.h"

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

/// Whether an event is an operator that a host ran, of a program that is not ours: what it launched is there,
/// too.
bool is_host_op(const TraceEvent& event) { return event.kind == "op" && event.op == nullptr; }

/// Adds the time of each operator of a host without that of those within it, below these and the ranges
/// around it on its thread.
void add_host_ops(const Trace& trace, Stacks& stacks) {
  struct Open {
    const TraceEvent* event = nullptr;
    std::int64_t own_ns = 0;
  };
  std::map<const record::Lane*, std::vector<Open>> threads;
  const auto close = [&](std::vector<Open>& open) {
    if (is_host_op(*open.back().event) && open.back().own_ns > 0) {
      Stack stack;
      for (const Open& one : open) stack.push_back(frame(one.event->name));
      stacks[stack] += open.back().own_ns;
    }
    open.pop_back();
  };
  for (const TraceEvent& event : trace.events()) {
    if (event.lane->kind != "host" || (!is_host_op(event) && event.kind != "range")) continue;
    std::vector<Open>& open = threads[event.lane];
    while (!open.empty() && open.back().event->end_ns <= event.start_ns) close(open);
    if (is_host_op(event)) {
      const auto around =
          std::find_if(open.rbegin(), open.rend(), [](const Open& one) { return is_host_op(*one.event); });
      if (around != open.rend())
        around->own_ns -= std::min(event.end_ns, around->event->end_ns) - event.start_ns;
    }
    open.push_back({&event, event.duration_ns()});
  }
  for (auto& [lane, open] : threads) {
    while (!open.empty()) close(open);
  }
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
  bool has_device_work = false;
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    const TraceEvent& event = trace.events()[i];
    has_device_work = has_device_work || is_device_work(event);
    if (is_host_op(event) || (!is_device_work(event) && event.kind != "op")) continue;
    Stack stack;
    if (event.op != nullptr) {
      add_scope(stack, event.op->op);
    } else {
      for (const TraceRange* range : around[i]) stack.push_back(frame(range->name));
    }
    const bool is_kernel = is_kernel_event(event);
    if (event.kind != "op") {
      stack.push_back(frame(is_kernel ? parse_kernel_name(event.name).short_name : std::string(event.name)));
    } else {
      stack.push_back(frame(kernel_name(event.op->op)));
    }
    stacks[stack] += event.duration_ns();
  }
  if (!has_device_work) add_host_ops(trace, stacks);
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
Stacks stacks_of(const HostStacks& sampled) {
  Stacks stacks;
  for (const HostStack& one : sampled.stacks) {
    Stack stack;
    for (const std::string& name : one.frames) stack.push_back(frame(name));
    if (one.is_waiting) stack.emplace_back(kWaits);
    stacks[stack] += static_cast<std::int64_t>(one.samples);
  }
  return stacks;
}

std::vector<std::string> sample_notes(const RunData& run, const HostStacks& sampled) {
  std::vector<std::string> notes;
  if (sampled.stacks.empty())
    notes.push_back(fmt::format("run {} has no sampled stacks: the graph is empty", run.run.id));
  if (sampled.outside > 0)
    notes.push_back(
        fmt::format("{} samples are left out: before the first step, after the last, or from threads that "
                    "launched nothing",
                    sampled.outside));
  return notes;
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
  const Trace trace(source.run, source.scope);
  const Stacks stacks = stacks_of(trace);
  for (const auto& [stack, ns] : stacks) sink(fmt::format("{} {}\n", fmt::join(stack, ";"), ns));
  return notes_of(trace, stacks);
}

std::vector<std::string> write_speedscope(const ExportSource& source, const TextSink& sink) {
  const Trace trace(source.run, source.scope);
  const Stacks stacks = stacks_of(trace);
  sink_speedscope(source.run.run.label, stacks, "nanoseconds", sink);
  return notes_of(trace, stacks);
}

std::vector<std::string> write_host_folded(const ExportSource& source, const TextSink& sink) {
  const HostStacks sampled = host_stacks(source.run);
  const Stacks stacks = stacks_of(sampled);
  for (const auto& [stack, samples] : stacks) sink(fmt::format("{} {}\n", fmt::join(stack, ";"), samples));
  return sample_notes(source.run, sampled);
}

std::vector<std::string> write_host_speedscope(const ExportSource& source, const TextSink& sink) {
  const HostStacks sampled = host_stacks(source.run);
  const Stacks stacks = stacks_of(sampled);
  sink_speedscope(source.run.run.label, stacks, "none", sink);
  return sample_notes(source.run, sampled);
}

}  // namespace rooflm::report
