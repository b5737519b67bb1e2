// Views of memory: over the step, at its peak, what forward saves for backward, allocator against arena.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/memory_curve.h"
#include "report/saved_tensors.h"
#include "report/summaries.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

/// Most points of a series in the chart over ops: more cannot be told apart.
constexpr std::size_t kMostPoints = 400;

std::set<std::string> roles_of(const MemoryCurve& curve) {
  std::set<std::string> roles;
  for (const MemoryMoment& moment : curve.by_op()) {
    for (const auto& [role, bytes] : moment.by_role) roles.insert(role);
  }
  return roles;
}

std::int64_t bytes_of(const MemoryMoment& moment, const std::string& role) {
  const auto found = moment.by_role.find(role);
  return found == moment.by_role.end() ? 0 : found->second;
}

Table phase_table(const MemoryCurve& curve) {
  Table table{.columns = {{"phase", "highest in"}, {"live_bytes", "live", Show::bytes, "byte"}},
              .rows = {},
              .notes = {}};
  const std::set<std::string> roles = roles_of(curve);
  for (const std::string& role : roles) table.columns.push_back({role, role, Show::bytes, "byte"});
  for (const MemoryMoment& moment : curve.phase_peaks()) {
    Row row;
    row.set("phase", moment.phase);
    row.set("op", moment.op);
    row.set("live_bytes", moment.live_bytes);
    for (const std::string& role : roles) row.set(role, bytes_of(moment, role));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table holder_table(const RunData& run, const MemoryCurve& curve, std::size_t top) {
  Table table{.columns = {{"tensor", "tensor"},
                          {"role", "role"},
                          {"scope", "made in"},
                          {"kind", "by"},
                          {"bytes", "bytes", Show::bytes, "byte"},
                          {"share", "of peak", Show::percent}},
              .rows = {},
              .notes = {}};
  const std::vector<Holder> holders = curve.holders(curve.peak_event());
  const std::size_t shown = top == 0 ? holders.size() : std::min(top, holders.size());
  std::int64_t rest_bytes = 0;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    const Holder& holder = holders[i];
    if (i >= shown) {
      rest_bytes += holder.bytes;
      continue;
    }
    const TimedOp* op = run.find_op(holder.allocated_by);
    Row row;
    row.set("tensor", holder.tensor->name);
    row.set("role", holder.tensor->role);
    row.set("scope", op == nullptr ? Cell() : Cell(op->op.scope));
    row.set("kind", op == nullptr ? Cell() : Cell(op->op.kind));
    row.set("op", holder.allocated_by);
    row.set("shape", holder.tensor->shape);
    row.set("dtype", holder.tensor->dtype);
    row.set("bytes", holder.bytes);
    row.set("share", cell_of(holder.share));
    table.rows.push_back(std::move(row));
  }
  if (rest_bytes > 0) {
    table.notes.push_back(fmt::format("{} more tensors hold {} together (--top 0 shows all)",
                                      holders.size() - shown, format_cell(Cell(rest_bytes), Show::bytes)));
  }
  return table;
}

/// Live bytes by role over the ops; each stretch of ops is shown by its highest moment.
Chart curve_chart(const MemoryCurve& curve) {
  Chart chart{.id = "memory",
              .title = "Live bytes over the step",
              .kind = ChartKind::stacked,
              .x = {.title = "op"},
              .y = {.title = "live", .unit = "byte"}};
  const std::vector<MemoryMoment>& moments = curve.by_op();
  // Modules of PyTorch come again and again: then moments are counted instead.
  const bool is_in_order = std::ranges::is_sorted(moments, {}, &MemoryMoment::op);
  if (!is_in_order) chart.x.title = "moment";
  const std::size_t stride = moments.size() / kMostPoints + 1;
  for (const std::string& role : roles_of(curve)) {
    Series& series = chart.series.emplace_back(Series{.name = role});
    for (std::size_t i = 0; i < moments.size(); i += stride) {
      const auto first = moments.begin() + static_cast<std::ptrdiff_t>(i);
      const auto last = moments.begin() + static_cast<std::ptrdiff_t>(std::min(i + stride, moments.size()));
      const auto highest = std::max_element(first, last, [](const MemoryMoment& a, const MemoryMoment& b) {
        return a.live_bytes < b.live_bytes;
      });
      series.points.push_back({.x = is_in_order ? static_cast<double>(highest->op)
                                                : static_cast<double>(highest - moments.begin()),
                               .y = static_cast<double>(bytes_of(*highest, role))});
    }
  }
  return chart;
}

/// What a fact about memory means; the order in which they are shown.
constexpr std::array<std::pair<const char*, const char*>, 14> kMemoryFacts = {{
    {"needed_bytes", "planned memory of the step: persistent tensors, and arena or peak"},
    {"free_bytes", "free memory before the run"},
    {"state_bytes", "persistent tensors: weights, optimizer state, inputs"},
    {"plan_bytes", "planned for tensors inside a step"},
    {"plan_peak_bytes", "planned peak of live bytes"},
    {"live_bytes_peak", "planned peak of live bytes in the arena"},
    {"arena_bytes", "the arena: one allocation for the step"},
    {"allocations", "allocations in a step"},
    {"allocator_peak_bytes", "peak of bytes handed out by the allocator"},
    {"allocator_reserved_bytes", "memory that the allocator took from the device"},
    {"torch_reserved_bytes", "memory that PyTorch's allocator had taken from the device, at most"},
    {"fragmentation", "share of that memory that no tensor used at the peak"},
    {"rss_increase_bytes", "growth of the process, as the system counts it"},
    {"peak_bytes", "peak memory in use, as measured"},
}};

/// What an allocator of the program had given out, and held, at the end of each step.
struct StepMemory {
  std::vector<double> allocated, reserved;
};

/// By device.
std::map<std::string, StepMemory> memory_of_steps(const RunData& run) {
  std::vector<const record::Gauge*> gauges;
  for (const record::Gauge& gauge : run.gauges) gauges.push_back(&gauge);
  std::ranges::stable_sort(gauges, {}, &record::Gauge::time_ns);
  std::map<std::string, StepMemory> devices;
  for (const record::Gauge* gauge : gauges) {
    if (gauge->name == "torch_allocated_bytes") devices[gauge->device].allocated.push_back(gauge->value);
    if (gauge->name == "torch_reserved_bytes") devices[gauge->device].reserved.push_back(gauge->value);
  }
  return devices;
}

void add_memory_of_steps(const RunData& run, View& view) {
  std::vector<std::int64_t> steps;
  for (const record::Sample& sample : run.samples) {
    if (sample.phase == kStep) steps.push_back(sample.step);
  }
  std::ranges::sort(steps);
  Table table{.columns = {{"step", "step"},
                          {"device", "device"},
                          {"allocated", "allocated", Show::bytes, "byte"},
                          {"reserved", "reserved", Show::bytes, "byte"}},
              .rows = {},
              .notes = {}};
  bool leaves_out = false;
  for (const auto& [device, memory] : memory_of_steps(run)) {
    // One of each for every step, in order; else nobody knows which is whose.
    if (memory.allocated.size() != steps.size() || memory.reserved.size() != steps.size()) continue;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const bool is_same = i > 0 && memory.allocated[i] == memory.allocated[i - 1] &&
                           memory.reserved[i] == memory.reserved[i - 1];
      leaves_out = leaves_out || is_same;
      if (is_same) continue;
      Row row;
      row.set("step", steps[i]);
      row.set("device", device);
      row.set("allocated", memory.allocated[i]);
      row.set("reserved", memory.reserved[i]);
      table.rows.push_back(std::move(row));
    }
  }
  if (table.rows.empty()) return;
  if (leaves_out) table.notes.emplace_back("steps that end like the previous one are left out");
  view.add("memory.steps", "Allocated and reserved at the end of steps", std::move(table));
}

void add_memory(const RunData& run, const ViewOptions& options, View& view) {
  const MemoryCurve curve(run);
  if (curve.empty()) return;
  Table phases = phase_table(curve);
  if (curve.devices() > 1) {
    phases.notes.push_back(
        fmt::format("of {}, which holds most; {} devices have memory", curve.device(), curve.devices()));
  }
  view.add("memory", "Live bytes by role", std::move(phases));
  view.add("memory.holders", "Alive at the peak", holder_table(run, curve, options.top));
  view.add(curve_chart(curve));
  add_memory_of_steps(run, view);
}

void add_saved(const RunData& run, const ViewOptions& /*options*/, View& view) {
  const SavedTensors saved = saved_tensors(run);
  Table table{.columns = {{"block", "block"},
                          {"tensors", "tensors"},
                          {"bytes", "bytes", Show::bytes, "byte"},
                          {"share", "share", Show::percent},
                          {"per_layer_bytes", "per layer", Show::bytes, "byte"}},
              .rows = {},
              .notes = {}};
  Chart chart{.id = "saved",
              .title = "Saved for backward by block",
              .kind = ChartKind::bar,
              .x = {.title = "block"},
              .y = {.title = "bytes", .unit = "byte"}};
  for (const SavedGroup& group : saved.groups) {
    Row row;
    row.set("block", group.part);
    row.set("tensors", group.tensors);
    row.set("bytes", group.bytes);
    row.set("share", cell_of(ratio_of(static_cast<double>(group.bytes), static_cast<double>(saved.bytes))));
    row.set("per_layer_bytes", group.layers == 0 ? Cell() : Cell(group.bytes / group.layers));
    table.rows.push_back(std::move(row));
    series_named(chart, "saved")
        .points.push_back({.x = category_index(chart.x, group.part), .y = static_cast<double>(group.bytes)});
  }
  if (!table.rows.empty()) {
    table.notes.push_back(fmt::format("{} together, alive at once after op {}",
                                      format_cell(Cell(saved.bytes), Show::bytes), saved.op));
  }
  view.add("saved", "Saved for backward", std::move(table));
  view.add(std::move(chart));
}

void add_allocator(const RunData& run, const ViewOptions& /*options*/, View& view) {
  Table table{
      .columns = {{"what", "what"}, {"shown", "value"}, {"meaning", "meaning"}}, .rows = {}, .notes = {}};
  for (const auto& [key, meaning] : kMemoryFacts) {
    const record::Fact* fact = run.fact(key);
    if (fact == nullptr || !fact->value) continue;
    const bool is_host_only = std::string_view(key) == "rss_increase_bytes" && is_on_gpu(run);
    const bool is_bytes = fact->unit == "B" || std::string_view(key).ends_with("_bytes");
    const bool is_share = fact->unit == "share" || std::string_view(key) == "fragmentation";
    Row row;
    row.set("what", std::string(key));
    row.set("value", *fact->value);
    row.set("unit", fact->unit);
    row.set("shown",
            format_cell(Cell(*fact->value), is_bytes ? Show::bytes : (is_share ? Show::percent : Show::si)));
    row.set("meaning",
            fact->text.empty() ? std::string(meaning) : std::string(meaning) + " (" + fact->text + ")");
    if (is_host_only)
      row.set("meaning", std::string("growth of the process on the host; GPU memory is not included"));
    table.rows.push_back(std::move(row));
  }
  const auto growth = ratio_of(run.number("rss_increase_bytes"), run.number("needed_bytes"));
  if (growth && !is_on_gpu(run))
    table.notes.push_back(fmt::format("the process grew by {:.2f} times what was planned", *growth));
  view.add("allocator", "Allocator and arena", std::move(table));
}

constexpr std::array kMemoryViews = {
    ViewDef{.place = 100,
            .info = {.name = "memory",
                     .title = "Memory over the step",
                     .note = "Live bytes by role at the highest moment of each phase, and the tensors alive "
                             "at the peak of the step.",
                     .needs = kNeedsMemory,
                     .is_on_page = true,
                     .warns_of_load = false},
            .of_run = add_memory,
            .of_all = nullptr},
    ViewDef{
        .place = 110,
        .info = {.name = "saved",
                 .title = "Saved for backward",
                 .note = "Activations that forward leaves for backward, at the moment when most of them are "
                         "alive, by the block that made them. Recompute and flash attention shrink this.",
                 .needs = "tensors (rooflm profile)",
                 .is_on_page = false,
                 .warns_of_load = false},
        .of_run = add_saved,
        .of_all = nullptr},
    ViewDef{.place = 120,
            .info = {.name = "allocator",
                     .title = "Allocator and arena",
                     .note = "Planned memory, memory taken by the allocator, and growth of the process.",
                     .needs = "facts about memory (rooflm profile)",
                     .is_on_page = false,
                     .warns_of_load = false},
            .of_run = add_allocator,
            .of_all = nullptr},
};

}  // namespace

std::span<const ViewDef> views_memory() { return kMemoryViews; }

}  // namespace rooflm::report
