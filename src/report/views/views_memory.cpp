// Views of memory: over the step, at its peak, what forward saves for backward, allocator against arena.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/model/memory_curve.h"
#include "report/model/saved_tensors.h"
#include "report/model/summaries.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

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

const TypedColumns<MemoryMoment>& moment_columns() {
  static const TypedColumns<MemoryMoment> columns = {
      {"phase", "highest in", &MemoryMoment::phase},
      {"op", &MemoryMoment::op},
      {"live_bytes", "live", &MemoryMoment::live_bytes, Show::bytes}};
  return columns;
}

/// Roles, what holds most at the highest moment of a phase first: a narrow terminal loses the last ones.
std::vector<std::string> largest_roles(const MemoryCurve& curve) {
  const std::set<std::string> names = roles_of(curve);
  std::map<std::string, std::int64_t> most;
  for (const MemoryMoment& moment : curve.phase_peaks()) {
    for (const auto& [role, bytes] : moment.by_role) most[role] = std::max(most[role], bytes);
  }
  std::vector<std::string> roles(names.begin(), names.end());
  std::ranges::stable_sort(roles, std::greater<>(), [&](const std::string& role) { return most[role]; });
  return roles;
}

/// With a column for each role that some tensor has.
Table phase_table(const MemoryCurve& curve) {
  TypedColumns<MemoryMoment> columns = moment_columns();
  for (const std::string& role : largest_roles(curve)) {
    columns.add({role.c_str(), role.c_str(),
                 [role](const MemoryMoment& moment) { return bytes_of(moment, role); }, Show::bytes});
  }
  return columns.table(curve.phase_peaks());
}

/// A tensor that is alive at the peak, and the op that allocated it.
struct ShownHolder : Holder {
  const TimedOp* op = nullptr;
};

const TypedColumns<ShownHolder>& holder_columns() {
  using Shown = ShownHolder;
  static const TypedColumns<ShownHolder> columns = {
      {"tensor", "tensor", [](const Shown& one) { return one.tensor->name; }},
      {"role", "role", [](const Shown& one) { return one.tensor->role; }},
      {"scope", "made in", [](const Shown& one) { return one.op == nullptr ? Cell() : one.op->op.scope; }},
      {"kind", "by", [](const Shown& one) { return one.op == nullptr ? Cell() : one.op->op.kind; }},
      {"op", &Shown::allocated_by},
      {"shape", [](const Shown& one) { return one.tensor->shape; }},
      {"dtype", [](const Shown& one) { return one.tensor->dtype; }},
      {"bytes", "bytes", &Shown::bytes, Show::bytes},
      {"share", "of peak", &Shown::share, Show::percent}};
  return columns;
}

Table holder_table(const RunData& run, const MemoryCurve& curve, std::size_t top) {
  std::vector<ShownHolder> holders;
  for (const Holder& holder : curve.holders(curve.peak_event()))
    holders.push_back({{holder}, run.find_op(holder.allocated_by)});
  Table table = holder_columns().table(holders, top, "tensors");
  std::int64_t rest_bytes = 0;
  for (std::size_t i = table.rows.size(); i < holders.size(); ++i) rest_bytes += holders[i].bytes;
  if (rest_bytes > 0) {
    table.notes = {fmt::format("{} more tensors hold {} together (--top 0 shows all)",
                               holders.size() - table.rows.size(),
                               format_cell(Cell(rest_bytes), Show::bytes))};
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
    {"allocator_reserved_bytes", "memory that the allocator holds at the peak"},
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

struct StepEnd {
  std::int64_t step = 0;
  std::string device;
  double allocated = 0, reserved = 0;
};

const TypedColumns<StepEnd>& step_end_columns() {
  static const TypedColumns<StepEnd> columns = {{"step", "step", &StepEnd::step},
                                                {"device", "device", &StepEnd::device},
                                                {"allocated", "allocated", &StepEnd::allocated, Show::bytes},
                                                {"reserved", "reserved", &StepEnd::reserved, Show::bytes}};
  return columns;
}

void add_memory_of_steps(const RunData& run, View& view) {
  std::vector<std::int64_t> steps;
  for (const record::Sample& sample : run.samples) {
    if (sample.phase == kStep) steps.push_back(sample.step);
  }
  std::ranges::sort(steps);
  std::vector<StepEnd> shown;
  bool leaves_out = false;
  for (const auto& [device, memory] : memory_of_steps(run)) {
    // One of each for every step, in order; else nobody knows which is whose.
    if (memory.allocated.size() != steps.size() || memory.reserved.size() != steps.size()) continue;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const bool is_same = i > 0 && memory.allocated[i] == memory.allocated[i - 1] &&
                           memory.reserved[i] == memory.reserved[i - 1];
      leaves_out = leaves_out || is_same;
      if (!is_same) shown.push_back({steps[i], device, memory.allocated[i], memory.reserved[i]});
    }
  }
  Table table = step_end_columns().table(shown);
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

/// What a block saves, beside all of it.
struct SavedShare : SavedGroup {
  std::int64_t all_bytes = 0;
  [[nodiscard]] std::optional<double> share() const {
    return ratio_of(static_cast<double>(bytes), static_cast<double>(all_bytes));
  }
  [[nodiscard]] std::optional<std::int64_t> per_layer_bytes() const {
    return layers == 0 ? std::nullopt : std::optional(bytes / layers);
  }
};

const TypedColumns<SavedShare>& saved_columns() {
  static const TypedColumns<SavedShare> columns = {
      {"block", "block", &SavedShare::part},
      {"tensors", "tensors", &SavedShare::tensors},
      {"bytes", "bytes", &SavedShare::bytes, Show::bytes},
      {"share", "share", &SavedShare::share, Show::percent},
      {"per_layer_bytes", "per layer", &SavedShare::per_layer_bytes, Show::bytes}};
  return columns;
}

void add_saved(const RunData& run, const ViewOptions& /*options*/, View& view) {
  const SavedTensors saved = saved_tensors(run);
  std::vector<SavedShare> shares;
  Chart chart{.id = "saved",
              .title = "Saved for backward by block",
              .kind = ChartKind::bar,
              .x = {.title = "block"},
              .y = {.title = "bytes", .unit = "byte"}};
  for (const SavedGroup& group : saved.groups) {
    shares.push_back({{group}, saved.bytes});
    series_named(chart, "saved")
        .points.push_back({.x = category_index(chart.x, group.part), .y = static_cast<double>(group.bytes)});
  }
  Table table = saved_columns().table(shares);
  if (!table.rows.empty()) {
    table.notes.push_back(fmt::format("{} together, alive at once after op {}",
                                      format_cell(Cell(saved.bytes), Show::bytes), saved.op));
  }
  view.add("saved", "Saved for backward", std::move(table));
  view.add(std::move(chart));
}

struct MemoryFact {
  std::string what;
  double value = 0;
  std::string unit, shown, meaning;
};

const TypedColumns<MemoryFact>& fact_columns() {
  static const TypedColumns<MemoryFact> columns = {{"what", "what", &MemoryFact::what},
                                                   {"value", &MemoryFact::value},
                                                   {"unit", &MemoryFact::unit},
                                                   {"shown", "value", &MemoryFact::shown},
                                                   {"meaning", "meaning", &MemoryFact::meaning}};
  return columns;
}

void add_allocator(const RunData& run, const ViewOptions& /*options*/, View& view) {
  std::vector<MemoryFact> facts;
  for (const auto& [key, meaning] : kMemoryFacts) {
    const record::Fact* fact = run.fact(key);
    if (fact == nullptr || !fact->value) continue;
    const bool is_host_only = std::string_view(key) == "rss_increase_bytes" && is_on_gpu(run);
    const bool is_bytes = fact->unit == "B" || std::string_view(key).ends_with("_bytes");
    const bool is_share = fact->unit == "share" || std::string_view(key) == "fragmentation";
    const std::string more = fact->text.empty() ? "" : " (" + fact->text + ")";
    facts.push_back({.what = key,
                     .value = *fact->value,
                     .unit = fact->unit,
                     .shown = format_cell(Cell(*fact->value),
                                          is_bytes ? Show::bytes : (is_share ? Show::percent : Show::si)),
                     .meaning = is_host_only ? "growth of the process on the host; GPU memory is not included"
                                             : meaning + more});
  }
  Table table = fact_columns().table(facts);
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
            .columns = [] { return columns_of(moment_columns(), holder_columns(), step_end_columns()); },
            .has_roles = true},
    ViewDef{
        .place = 110,
        .info = {.name = "saved",
                 .title = "Saved for backward",
                 .note = "Activations that forward leaves for backward, at the moment when most of them are "
                         "alive, by the block that made them. Recompute and flash attention shrink this.",
                 .needs = "tensors (rooflm profile)",
                 .warns_of_load = false},
        .of_run = add_saved,
        .columns = [] { return columns_of(saved_columns()); }},
    ViewDef{.place = 120,
            .info = {.name = "allocator",
                     .title = "Allocator and arena",
                     .note = "Planned memory, memory taken by the allocator, and growth of the process.",
                     .needs = "facts about memory (rooflm profile)",
                     .warns_of_load = false},
            .of_run = add_allocator,
            .columns = [] { return columns_of(fact_columns()); }},
};

}  // namespace

std::span<const ViewDef> views_memory() { return kMemoryViews; }

}  // namespace rooflm::report
