// The view of kernels: what really ran on the device, by name and class, beside what the program says.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/statistics.h"
#include "report/covered.h"
#include "report/match_runs.h"
#include "report/summaries.h"
#include "report/traced_kernels.h"
#include "report/view_def.h"

namespace rooflm::report {
namespace {

Row kernel_row(const KernelSum& sum) {
  Row row;
  row.set("time_share", cell_of(sum.time_share));
  row.set("class", sum.kernel_class);
  row.set("per_step", sum.per_step);
  row.set("instances", static_cast<std::int64_t>(sum.instances));
  row.set("total_s", sum.total_s);
  row.set("avg_s", sum.mean_s);
  row.set("med_s", sum.median_s);
  row.set("min_s", sum.min_s);
  row.set("max_s", sum.max_s);
  row.set("std_s", sum.std_s);
  row.set("roof_share", cell_of(sum.roof_share));
  row.set("exclusive_s", sum.exclusive_s);
  row.set("shared_s", sum.shared_s);
  row.set("occupancy", cell_of(sum.occupancy));
  row.set("occupancy_limit", sum.occupancy_limit);
  row.set("waves", cell_of(sum.waves));
  row.set("library", sum.name.library);
  row.set("name", sum.name.short_name);
  row.set("full_name", sum.text);
  return row;
}

Table kernel_table(const std::vector<KernelSum>& sums, std::size_t top) {
  Table table{.columns = {{"time_share", "time %", Show::percent},
                          {"class", "class"},
                          {"per_step", "per step"},
                          {"total_s", "total", Show::seconds, "s"},
                          {"avg_s", "avg", Show::seconds, "s"},
                          {"med_s", "med", Show::seconds, "s"},
                          {"min_s", "min", Show::seconds, "s"},
                          {"max_s", "max", Show::seconds, "s"},
                          {"std_s", "stddev", Show::seconds, "s"},
                          {"occupancy", "occupancy", Show::percent},
                          {"occupancy_limit", "limit"},
                          {"waves", "waves", Show::fixed1},
                          {"library", "library"},
                          {"name", "name"}},
              .rows = {},
              .notes = {}};
  // Of programs of others, whose kernels have prices of their own.
  if (std::ranges::any_of(sums, [](const KernelSum& sum) { return sum.roof_share.has_value(); })) {
    table.columns.insert(table.columns.begin() + 9, Column{"roof_share", "roof/time", Show::percent});
  }
  for (const KernelSum& sum : sums) {
    if (top > 0 && table.rows.size() == top) {
      table.notes.push_back(fmt::format("{} more kernels (--top 0 shows all)", sums.size() - top));
      break;
    }
    table.rows.push_back(kernel_row(sum));
  }
  return table;
}

/// The longest kernels of each phase.
Table phase_table(const RunData& run, const TracedKernels& kernels, std::size_t top) {
  Table all;
  for (const std::string& phase : phases_of(run)) {
    Table table = kernel_table(kernel_sums(kernels, phase), top);
    for (Row& row : table.rows) row.set_first("phase", phase);
    for (std::string& note : table.notes) note.insert(0, phase + ": ");
    if (all.columns.empty()) all.columns = table.columns;
    std::ranges::move(table.rows, std::back_inserter(all.rows));
    std::ranges::move(table.notes, std::back_inserter(all.notes));
  }
  if (!all.columns.empty()) all.columns.insert(all.columns.begin(), Column{"phase", "phase"});
  all.notes.emplace_back("time %: share of the time in which the device was busy with the phase");
  return all;
}

/// The unknown class is there even when it is empty: it says what the other shares are of.
Table class_table(const std::vector<KernelSum>& sums, const std::vector<KernelSum>& forward,
                  std::size_t steps) {
  struct Class {
    double per_step = 0, part_s = 0, share = 0, forward_s = 0, forward_share = 0;
    std::size_t names = 0;
  };
  std::map<std::string, Class> classes;
  classes[std::string(kUnknownClass)] = {};
  for (const KernelSum& sum : sums) {
    Class& one = classes[sum.kernel_class];
    one.per_step += sum.per_step;
    one.part_s += (sum.exclusive_s + sum.shared_s) / static_cast<double>(steps);
    one.share += sum.time_share.value_or(0);
    ++one.names;
  }
  for (const KernelSum& sum : forward) {
    Class& one = classes[sum.kernel_class];
    one.forward_s += (sum.exclusive_s + sum.shared_s) / static_cast<double>(steps);
    one.forward_share += sum.time_share.value_or(0);
  }
  std::vector<std::pair<std::string, Class>> order(classes.begin(), classes.end());
  std::ranges::stable_sort(order,
                           [](const auto& a, const auto& b) { return a.second.part_s > b.second.part_s; });
  Table table{.columns = {{"class", "class"},
                          {"time_share", "time %", Show::percent},
                          {"step_s", "in a step", Show::seconds, "s"},
                          {"forward_share", "of forward", Show::percent},
                          {"forward_s", "in forward", Show::seconds, "s"},
                          {"per_step", "kernels per step"},
                          {"names", "names"}},
              .rows = {},
              .notes = {}};
  for (const auto& [name, one] : order) {
    Row row;
    row.set("class", name);
    row.set("time_share", one.share);
    row.set("step_s", one.part_s);
    if (!forward.empty()) {  // else nobody knows what belongs to it
      row.set("forward_share", one.forward_share);
      row.set("forward_s", one.forward_s);
    }
    row.set("per_step", one.per_step);
    row.set("names", static_cast<std::int64_t>(one.names));
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// GEMM kernels of one name, part and role.
struct Gemm {
  const TracedKernel* first = nullptr;
  std::vector<double> seconds;
  double flop = 0, flop_s = 0;  ///< of those whose FLOP are known
};

/// An op of ours is one matmul. That of others is a module, so its kernels have prices of their own.
double flop_of(const RunData& run, const TracedKernel& kernel) {
  if (is_foreign(run.run)) return kernel.price == nullptr ? 0 : kernel.price->work.matmul_flop;
  // A kernel without a tile sums the parts of a split-K matmul.
  return kernel.op == nullptr || kernel.name->tile.empty() ? 0
                                                           : static_cast<double>(kernel.op->op.matmul_flop);
}

Table gemm_table(const RunData& run, const TracedKernels& kernels) {
  std::map<std::array<std::string, 3>, Gemm> gemms;
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind != kTraced || kernel.kernel_class != "gemm") continue;
    const record::Op* op = kernel.op == nullptr ? nullptr : &kernel.op->op;
    Gemm& gemm =
        gemms[{op == nullptr ? "" : gemm_role(run, *op), op == nullptr ? "" : kernel.op->part, *kernel.text}];
    gemm.first = gemm.first == nullptr ? &kernel : gemm.first;
    gemm.seconds.push_back(kernel.seconds());
    const double flop = flop_of(run, kernel);
    gemm.flop += flop;
    gemm.flop_s += flop > 0 ? kernel.seconds() : 0;
  }
  Table table{.columns = {{"role", "role"},
                          {"part", "part"},
                          {"per_step", "per step"},
                          {"med_s", "med", Show::seconds, "s"},
                          {"flop_per_s", "FLOP/s", Show::si, "flop/s"},
                          {"tile", "tile"},
                          {"stages", "stages"},
                          {"cluster", "cluster"},
                          {"instruction", "instruction"},
                          {"precision", "precision"},
                          {"library", "library"},
                          {"name", "name"}},
              .rows = {},
              .notes = {}};
  for (const auto& [key, gemm] : gemms) {
    const KernelName& name = *gemm.first->name;
    Row row;
    row.set("role", key[0]);
    row.set("part", key[1]);
    row.set("per_step", cell_of(ratio_of(static_cast<double>(gemm.seconds.size()),
                                         static_cast<double>(kernels.steps()))));
    row.set("med_s", core::median(gemm.seconds));
    row.set("flop_per_s", gemm.flop > 0 ? cell_of(ratio_of(gemm.flop, gemm.flop_s)) : Cell());
    row.set("tile", name.tile);
    row.set("stages", name.stages);
    row.set("cluster", name.cluster);
    row.set("instruction", name.instruction);
    row.set("precision", name.precision);
    row.set("library", name.library);
    row.set("name", name.short_name);
    row.set("full_name", key[2]);
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table seen_table(const RunData& run, const TracedKernels& kernels) {
  Table table{.columns = {{"phase", "phase"},
                          {"kind", "op"},
                          {"explained", "ops per step"},
                          {"predicted", "kernels predicted"},
                          {"seen", "seen"},
                          {"agrees", "agrees"},
                          {"kernel", "kernel"}},
              .rows = {},
              .notes = {"predicted: launches that the ops' kernels declare; - if one does not. seen: without "
                        "kernels that only fill memory for a matmul"}};
  for (const SeenInstances& seen : seen_instances(run, kernels)) {
    Row row;
    row.set("phase", seen.phase);
    row.set("kind", seen.op_kind);
    row.set("explained", seen.explained);
    row.set("ops", seen.ops);
    row.set("predicted", seen.predicted ? Cell(*seen.predicted) : Cell());
    row.set("seen", seen.seen);
    row.set("agrees", seen.agrees() ? Cell(*seen.agrees()) : Cell());
    row.set("kernel", seen.kernel);
    table.rows.push_back(std::move(row));
  }
  return table;
}

void add_kernels(const RunData& run, const ViewOptions& options, View& view) {
  const TracedKernels& kernels = traced_kernels(run);
  if (kernels.steps() == 0) return;
  const std::vector<KernelSum> sums = kernel_sums(kernels);
  Table classes = class_table(sums, kernel_sums(kernels, kPhases[0]), kernels.steps());
  classes.notes.push_back("of " + count_of(kernels.steps(), "traced step"));
  if (!run.text("tracing_cost").empty()) classes.notes.push_back(run.text("tracing_cost"));
  view.add("kernels.classes", "Classes of kernels", std::move(classes));
  view.add("kernels", "Kernels by name", kernel_table(sums, options.top));
  view.add("kernels.phases", "Kernels by phase", phase_table(run, kernels, options.top));
  view.add("kernels.gemms", "GEMM kernels", gemm_table(run, kernels));
  view.add("kernels.seen", "Kernels seen and predicted", seen_table(run, kernels));
  if (const auto covered = covered_by(run); covered && !covered->lacks.empty() && !covered->knows_nothing())
    view.add("kernels.unknown", "Kernels without a module, a phase or a price",
             lacks_table(*covered, options.top));
}

constexpr std::array kKernelsViews = {
    ViewDef{.place = 41,
            .info = {.name = "kernels",
                     .title = "Kernels on the device",
                     .note = "What ran on the device in traced steps. time %: share of the time in which the "
                             "device was busy; time in which several kernels run is divided among them. "
                             "Waves: blocks / blocks that the device holds at once.",
                     .needs = "traced steps (rooflm profile on a GPU with CUPTI)",
                     .is_on_page = false},
            .of_run = add_kernels,
            .of_all = nullptr}};

}  // namespace

std::span<const ViewDef> views_kernels() { return kKernelsViews; }

}  // namespace rooflm::report
