// The view of kernels: what really ran on the device, by name and class, beside what the program says.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/statistics.h"
#include "core/units.h"
#include "report/model/covered.h"
#include "report/model/summaries.h"
#include "report/model/traced_kernels.h"
#include "report/runs/match_runs.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

const TypedColumns<KernelSum>& kernel_sum_columns() {
  static const TypedColumns<KernelSum> columns = {
      {"time_share", "time %", &KernelSum::time_share, Show::percent},
      {"class", "class", &KernelSum::kernel_class},
      {"per_step", "per step", &KernelSum::per_step},
      {"instances", &KernelSum::instances},
      {"total_s", "total", &KernelSum::total_s, Show::seconds},
      {"avg_s", "avg", &KernelSum::mean_s, Show::seconds},
      {"med_s", "med", &KernelSum::median_s, Show::seconds},
      {"min_s", "min", &KernelSum::min_s, Show::seconds},
      {"max_s", "max", &KernelSum::max_s, Show::seconds},
      {"std_s", "stddev", &KernelSum::std_s, Show::seconds},
      // Of programs of others, whose kernels have prices of their own.
      {"roof_share", "roof/time", &KernelSum::roof_share, Seen::when_known, Show::percent},
      {"exclusive_s", &KernelSum::exclusive_s},
      {"shared_s", &KernelSum::shared_s},
      {"occupancy", "occupancy", &KernelSum::occupancy, Show::percent},
      {"occupancy_limit", "limit", &KernelSum::occupancy_limit},
      {"waves", "waves", &KernelSum::waves, Show::fixed1},
      {"library", "library", [](const KernelSum& sum) { return sum.name.library; }},
      {"name", "name", [](const KernelSum& sum) { return sum.name.short_name; }},
      {"full_name", &KernelSum::text}};
  return columns;
}

/// A kernel in one of the phases.
struct PhaseKernel {
  std::string phase;
  KernelSum sum;
};

const TypedColumns<PhaseKernel>& phase_kernel_columns() {
  static const TypedColumns<PhaseKernel> columns =
      TypedColumns<PhaseKernel>({{"phase", "phase", &PhaseKernel::phase}})
          .add(kernel_sum_columns(), &PhaseKernel::sum);
  return columns;
}

/// The longest kernels of each phase.
Table phase_table(const RunData& run, const TracedKernels& kernels, std::size_t top) {
  std::vector<PhaseKernel> shown;
  std::vector<std::string> notes;
  for (const std::string& phase : phases_of(run)) {
    const std::vector<KernelSum> sums = kernel_sums(kernels, phase);
    const std::size_t count = top == 0 ? sums.size() : std::min(top, sums.size());
    for (std::size_t i = 0; i < count; ++i) shown.push_back({.phase = phase, .sum = sums[i]});
    if (count < sums.size()) notes.push_back(phase + ": " + more_rows(sums.size() - count, "kernels"));
  }
  Table table = phase_kernel_columns().table(shown);
  table.notes = std::move(notes);
  table.notes.emplace_back("time %: share of the time in which the device was busy with the phase");
  return table;
}

/// Kernels of one class. What belongs to the forward pass is nothing where no kernel has a phase.
struct Class {
  std::string name{};
  double share = 0, part_s = 0;
  std::optional<double> forward_share{}, forward_s{};
  double per_step = 0;
  std::size_t names = 0;
};

const TypedColumns<Class>& class_columns() {
  static const TypedColumns<Class> columns = {
      {"class", "class", &Class::name},
      {"time_share", "time %", &Class::share, Show::percent},
      {"step_s", "in a step", &Class::part_s, Show::seconds},
      {"forward_share", "of forward", &Class::forward_share, Show::percent},
      {"forward_s", "in forward", &Class::forward_s, Show::seconds},
      {"per_step", "kernels per step", &Class::per_step},
      {"names", "names", &Class::names}};
  return columns;
}

/// The unknown class is there even when it is empty: it says what the other shares are of.
std::vector<Class> classes_of(const std::vector<KernelSum>& sums, const std::vector<KernelSum>& forward,
                              std::size_t steps) {
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
    one.forward_s = one.forward_s.value_or(0) + (sum.exclusive_s + sum.shared_s) / static_cast<double>(steps);
    one.forward_share = one.forward_share.value_or(0) + sum.time_share.value_or(0);
  }
  std::vector<Class> order;
  for (auto& [name, one] : classes) {
    one.name = name;
    if (!forward.empty() && !one.forward_s) one.forward_s = one.forward_share = 0;
    order.push_back(one);
  }
  std::ranges::stable_sort(order, std::ranges::greater{}, &Class::part_s);
  return order;
}

/// GEMM kernels of one name, part and role.
struct Gemm {
  std::string role{}, part{}, full_name{};
  KernelName name{};
  std::vector<double> seconds{};
  double flop = 0, flop_s = 0;  ///< of those whose FLOP are known
  std::size_t steps = 0;
  [[nodiscard]] std::optional<double> per_step() const {
    return ratio_of(static_cast<double>(seconds.size()), static_cast<double>(steps));
  }
  [[nodiscard]] std::optional<double> flop_per_s() const {
    return flop > 0 ? ratio_of(flop, flop_s) : std::nullopt;
  }
};

const TypedColumns<Gemm>& gemm_kernel_columns() {
  static const TypedColumns<Gemm> columns = {
      {"role", "role", &Gemm::role},
      {"part", "part", &Gemm::part},
      {"per_step", "per step", &Gemm::per_step},
      {"med_s", "med", [](const Gemm& gemm) { return core::median(gemm.seconds); }, Show::seconds},
      {"flop_per_s", "FLOP/s", &Gemm::flop_per_s, Show::si, "flop/s"},
      {"tile", "tile", [](const Gemm& gemm) { return gemm.name.tile; }},
      {"stages", "stages", [](const Gemm& gemm) { return gemm.name.stages; }},
      {"cluster", "cluster", [](const Gemm& gemm) { return gemm.name.cluster; }},
      {"instruction", "instruction", [](const Gemm& gemm) { return gemm.name.instruction; }},
      {"precision", "precision", [](const Gemm& gemm) { return gemm.name.precision; }},
      {"library", "library", [](const Gemm& gemm) { return gemm.name.library; }},
      {"name", "name", [](const Gemm& gemm) { return gemm.name.short_name; }},
      {"full_name", &Gemm::full_name}};
  return columns;
}

/// An op of ours is one matmul. That of others is a module, so its kernels have prices of their own.
double flop_of(const RunData& run, const TracedKernel& kernel) {
  if (is_foreign(run.run)) return kernel.price == nullptr ? 0 : kernel.price->work.matmul_flop;
  // A kernel without a tile sums the parts of a split-K matmul.
  return kernel.op == nullptr || kernel.name->tile.empty() ? 0
                                                           : static_cast<double>(kernel.op->op.matmul_flop);
}

std::vector<Gemm> gemms_of(const RunData& run, const TracedKernels& kernels) {
  std::map<std::array<std::string, 3>, Gemm> gemms;
  for (const TracedKernel& kernel : kernels.all()) {
    if (kernel.step_kind != kTraced || kernel.kernel_class != "gemm") continue;
    const record::Op* op = kernel.op == nullptr ? nullptr : &kernel.op->op;
    const std::string role = op == nullptr ? "" : gemm_role(run, *op);
    const std::string part = op == nullptr ? "" : kernel.op->part;
    Gemm& gemm = gemms[{role, part, *kernel.text}];
    if (gemm.seconds.empty()) {
      gemm = {.role = role,
              .part = part,
              .full_name = *kernel.text,
              .name = *kernel.name,
              .steps = kernels.steps()};
    }
    gemm.seconds.push_back(kernel.seconds());
    const double flop = flop_of(run, kernel);
    gemm.flop += flop;
    gemm.flop_s += flop > 0 ? kernel.seconds() : 0;
  }
  std::vector<Gemm> order;
  for (auto& [key, gemm] : gemms) order.push_back(std::move(gemm));
  return order;
}

const TypedColumns<SeenInstances>& seen_columns() {
  static const TypedColumns<SeenInstances> columns = {
      {"phase", "phase", &SeenInstances::phase},
      {"kind", "op", &SeenInstances::op_kind},
      {"explained", "ops per step", &SeenInstances::explained},
      {"ops", &SeenInstances::ops},
      {"predicted", "kernels predicted", &SeenInstances::predicted},
      {"seen", "seen", &SeenInstances::seen},
      {"agrees", "agrees", &SeenInstances::agrees},
      {"kernel", "kernel", &SeenInstances::kernel}};
  return columns;
}

void add_kernels(const RunData& run, const ViewOptions& options, View& view) {
  const TracedKernels& kernels = traced_kernels(run);
  if (kernels.steps() == 0) return;
  const std::vector<KernelSum> sums = kernel_sums(kernels);
  Table classes = class_columns().table(classes_of(sums, kernel_sums(kernels, kPhases[0]), kernels.steps()));
  classes.notes.push_back("of " + core::format_count(kernels.steps(), "traced step"));
  if (!run.text("tracing_cost").empty()) classes.notes.push_back(run.text("tracing_cost"));
  view.add("kernels.classes", "Classes of kernels", std::move(classes));
  view.add("kernels", "Kernels by name", kernel_sum_columns().table(sums, options.top, "kernels"));
  view.add("kernels.phases", "Kernels by phase", phase_table(run, kernels, options.top));
  view.add("kernels.gemms", "GEMM kernels", gemm_kernel_columns().table(gemms_of(run, kernels)));
  Table seen = seen_columns().table(seen_instances(run, kernels));
  seen.notes.emplace_back(
      "predicted: launches that the ops' kernels declare; - if one does not. seen: without "
      "kernels that only fill memory for a matmul");
  view.add("kernels.seen", "Kernels seen and predicted", std::move(seen));
  if (const auto covered = covered_by(run); covered && !covered->lacks.empty() && !covered->knows_nothing())
    view.add("kernels.unknown", "Kernels without a module, a phase or a price",
             lack_columns().table(covered->lacks, options.top, "kernels"));
}

constexpr std::array kKernelsViews = {
    ViewDef{.place = 41,
            .info = {.name = "kernels",
                     .title = "Kernels on the device",
                     .note = "What ran on the device in traced steps. time %: share of the time in which the "
                             "device was busy; time in which several kernels run is divided among them. "
                             "Waves: blocks / blocks that the device holds at once.",
                     .needs = "traced steps (rooflm profile on a GPU with CUPTI)"},
            .of_run = add_kernels,
            .columns = [] {
              return columns_of(phase_kernel_columns(), class_columns(), gemm_kernel_columns(),
                                seen_columns(), lack_columns());
            }}};

}  // namespace

std::span<const ViewDef> views_kernels() { return kKernelsViews; }

}  // namespace rooflm::report
