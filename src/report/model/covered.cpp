// What is known of the work of a recorded program's device.
#include "report/model/covered.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "report/model/device_times.h"
#include "report/model/kernel_names.h"
#include "report/runs/match_runs.h"

namespace rooflm::report {
namespace {

constexpr std::string_view kOutside = "other";  // scope of what no module did

/// As Inductor names the kernels that it makes: "triton_poi_fused_add_0".
bool is_of_inductor(std::string_view kernel) {
  return kernel.starts_with("triton_") && kernel.find("_fused_") != std::string_view::npos;
}

/// A Triton kernel of the program itself: nobody says which of its tensors it writes, or how much of them.
bool has_whole_tensors(const record::KernelWork& work) {
  return work.call.starts_with("triton::") && !work.call.starts_with("triton::triton_") &&
         work.shapes.find("->") == std::string::npos;
}

}  // namespace

std::optional<Covered> covered_by(const RunData& run) {
  if (!is_foreign(run.run)) return std::nullopt;
  const ActivityNames names(run);
  const bool has_steps = std::ranges::any_of(run.activities, [&](const record::Activity& one) {
    return one.step.has_value() && names.is_kernel(one);
  });
  std::set<std::int64_t> warmup;  // of which nothing is worked out
  for (const record::Sample& sample : run.samples) {
    if (sample.kind == kWarmup) warmup.insert(sample.step);
  }
  Covered covered;
  std::map<std::string_view, std::array<double, kKnown.size()>> lacking;
  double all_ns = 0;
  std::set<std::int64_t> graphs;  // ops that kernels of Inductor are of
  for (const record::Activity& one : run.activities) {
    if (one.op && names.is_kernel(one) && is_of_inductor(names.text(one))) graphs.insert(*one.op);
  }
  for (const record::Activity& one : run.activities) {
    if (has_steps && (!one.step || warmup.contains(*one.step))) continue;
    if (!is_device_kind(names.kind(one))) continue;
    const auto ns = static_cast<double>(one.end_ns - one.start_ns);
    const TimedOp* op = one.op ? run.find_op(*one.op) : nullptr;
    const std::array has = {op != nullptr && op->op.scope != kOutside, op != nullptr, one.work.has_value()};
    all_ns += ns;
    if (op != nullptr && graphs.contains(*one.op) && op->op.phase != "optimizer") covered.compiled += ns;
    const KernelPrice* price = run.price_of(one);
    if (price != nullptr && has_whole_tensors(price->work)) covered.whole_tensors += ns;
    for (std::size_t i = 0; i < has.size(); ++i) covered.share.at(i) += has.at(i) ? ns : 0;
    if (std::ranges::count(has, true) == std::ssize(has)) continue;
    auto& lack = lacking[names.text(one)];
    for (std::size_t i = 0; i < has.size(); ++i) lack.at(i) += has.at(i) ? 0 : ns;
  }
  if (all_ns <= 0) return std::nullopt;
  for (double& share : covered.share) share /= all_ns;
  covered.compiled /= all_ns;
  covered.whole_tensors /= all_ns;
  for (const auto& [text, ns] : lacking) {
    Covered::Lack lack{.name = parse_kernel_name(text).short_name, .full_name = std::string(text)};
    // What no kernel has was not noted: then there is nothing to list.
    for (std::size_t i = 0; i < lack.part.size(); ++i) {
      lack.part.at(i) = covered.share.at(i) > 0 ? ns.at(i) / all_ns : 0;
      lack.share = std::max(lack.share, lack.part.at(i));
    }
    if (lack.share > 0) covered.lacks.push_back(std::move(lack));
  }
  std::ranges::stable_sort(covered.lacks, std::ranges::greater{}, &Covered::Lack::share);
  return covered;
}

std::string covered_text(const RunData& run) {
  constexpr std::size_t kMost = 3;
  constexpr double kLeast = 0.0005;  // what prints as 0.1 %
  const std::optional<Covered> covered = covered_by(run);
  if (!covered) return "";
  if (covered->knows_nothing())
    return "no kernel has a module, a phase or a price (rooflm record knows those of PyTorch and JAX)";
  std::string text;
  for (std::size_t i = 0; i < kKnown.size(); ++i) {
    text += fmt::format("{}{:.1f}%{} a {}", i > 0 ? ", " : "", 100 * covered->share.at(i),
                        i > 0 ? "" : " has", kKnown.at(i));
  }
  if (covered->compiled >= kLeast) {
    text += fmt::format(
        "; {:.1f}% is from torch.compile graphs: their kernels count for the compiled module, not for those "
        "inside it",
        100 * covered->compiled);
  }
  if (covered->whole_tensors >= kLeast) {
    text += fmt::format(
        "; {:.1f}% is from the program's Triton kernels, priced as if they touched all of each tensor "
        "once: an upper bound on their bytes unless they touch some again",
        100 * covered->whole_tensors);
  }
  for (std::size_t i = 0; i < kKnown.size(); ++i) {
    std::vector<const Covered::Lack*> without;
    for (const Covered::Lack& lack : covered->lacks) {
      if (lack.part.at(i) >= kLeast) without.push_back(&lack);
    }
    std::ranges::stable_sort(without, std::ranges::greater{},
                             [i](const auto* one) { return one->part.at(i); });
    if (without.empty()) continue;
    text += fmt::format("; without a {}: ", kKnown.at(i));
    for (std::size_t n = 0; n < std::min(without.size(), kMost); ++n) {
      text += fmt::format("{}{} {:.1f}%", n > 0 ? ", " : "", without[n]->name, 100 * without[n]->part.at(i));
    }
    if (without.size() > kMost) text += fmt::format(" and {} more", without.size() - kMost);
  }
  return text;
}

std::string Covered::Lack::names() const {
  std::string names;
  for (std::size_t i = 0; i < kKnown.size(); ++i) {
    if (part.at(i) > 0) names += fmt::format("{}{}", names.empty() ? "" : ", ", kKnown.at(i));
  }
  return names;
}

const TypedColumns<Covered::Lack>& lack_columns() {
  using Lack = Covered::Lack;
  static const TypedColumns<Lack> columns = {{"time_share", "time %", &Lack::share, Show::percent},
                                             {"lacks", "lacks", &Lack::names},
                                             {"name", "name", &Lack::name},
                                             {"full_name", &Lack::full_name}};
  return columns;
}

}  // namespace rooflm::report
