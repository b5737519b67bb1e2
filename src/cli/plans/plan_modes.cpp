// Plans of more than one size: scaling curves, the largest that fits, the smallest cluster.
#include "cli/plans/plan_modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "cli/output.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/units.h"
#include "perfmodel/search.h"

namespace rooflm::cli {
namespace {

using perfmodel::PlanPoint;
using perfmodel::Setting;

std::vector<std::int64_t> global_batches_of(const PlanOptions& options) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  auto batches = parse_integers("--global-batch", options.global_batch);
  for (const std::int64_t batch : batches) {
    if (batch > kMost) throw core::UsageError(fmt::format("--global-batch {} is more than {}", batch, kMost));
  }
  if (batches.empty()) batches = {0};
  return batches;
}

/// The only one, or core::UsageError.
template <class T>
T single(std::vector<T> values, std::string_view what) {
  if (values.size() != 1)
    throw core::UsageError(
        fmt::format("{} needs a single configuration, the options name {}", what, values.size()));
  return std::move(values.front());
}

std::int64_t global_batch_of(const PlanOptions& options) { return single(global_batches_of(options), "it"); }

/// Parts of the model on a stage that a search tries.
std::vector<int> parts_of(const PlanOptions& options) {
  std::vector<int> parts;
  for (const std::int64_t each : parse_integers("--interleave", options.splits.text("interleave")))
    parts.push_back(degree("--interleave", each));
  return parts;
}

std::string needs(const perfmodel::Plan& plan) {
  return fmt::format("needs {} of {}", core::format_bytes(plan.memory.total()),
                     core::format_bytes(plan.memory_limit_bytes));
}

void note_search(const perfmodel::SearchResult& found, std::size_t top, double limit_bytes) {
  note("{} configurations tried: {} planned to the end, {} too large for {}, {} slower than the best {}",
       found.tried, found.planned, found.too_large, core::format_bytes(limit_bytes), found.too_slow, top);
}

/// The global batch of one of the curve's points.
std::int64_t scaled_batch(const PlanOptions& options, std::int64_t first, std::int64_t gpus,
                          std::int64_t first_gpus) {
  if (options.scaling == "strong") return first;
  if (first * gpus % first_gpus != 0)
    throw core::UsageError(fmt::format("--scaling weak: a global batch of {} on {} GPUs cannot grow to {}",
                                       first, first_gpus, gpus));
  return first * gpus / first_gpus;
}

/// Sets PlannedRun::speed_up and efficiency of runs [first, end) against the first that fits.
void compare_curve(std::vector<PlannedRun>& runs, std::size_t first) {
  const auto rate = [](const PlannedRun& run) {
    return static_cast<double>(run.point->tokens()) / run.plan->step_s;
  };
  const auto base = std::find_if(runs.begin() + static_cast<std::ptrdiff_t>(first), runs.end(),
                                 [](const PlannedRun& run) { return run.plan->fits; });
  for (auto run = base; run != runs.end(); ++run) {
    if (!run->plan->fits) continue;
    run->speed_up = rate(*run) / rate(*base);
    run->efficiency = *run->speed_up * base->point->gpus() / run->point->gpus();
  }
}

/// What --largest makes larger: `unit`, 2 `unit`, .. and at last `most`.
struct Growth {
  std::int64_t unit = 1, most = 1;
  std::int64_t offset = 0;  ///< less than so many units
  std::function<void(PlanPoint&, std::int64_t)> set;

  [[nodiscard]] std::int64_t units() const { return (most + unit - 1) / unit; }
  [[nodiscard]] std::int64_t value(std::int64_t units) const { return std::min(units * unit, most) - offset; }
};

/// What tensor-parallel ranks that share the rows of a micro-batch ask of one factor of their number.
std::int64_t least_share(const compile::Sharding& sharding, std::int64_t other_factor) {
  return sharding.sequence_parallel ? sharding.tensor / std::gcd(std::int64_t{sharding.tensor}, other_factor)
                                    : 1;
}

Growth growth_of(const std::string& what, const PlanPoint& base) {
  constexpr std::int64_t kMostSequences = 1 << 20;
  constexpr std::int64_t kMostTokens = 1 << 27;
  constexpr std::int64_t kMostLayers = 100'000;
  constexpr std::int64_t kTokens = 128;
  const compile::Sharding& sharding = base.step.sharding;
  const std::int64_t context = sharding.context;
  if (what == "batch") {
    const std::int64_t unit = least_share(sharding, base.seq / context);
    return {.unit = unit, .most = kMostSequences / unit * unit, .set = [](PlanPoint& p, std::int64_t value) {
              p.micro_batch = value;
            }};
  }
  if (what == "seq") {
    const std::int64_t positions = base.config.max_seq > 0 ? base.config.max_seq : kMostTokens;
    const std::int64_t pieces = context > 1 ? 2 * context : 1;
    const std::int64_t needed = std::lcm(pieces, context * least_share(sharding, base.micro_batch));
    return {.unit = std::lcm(kTokens, needed),
            .most = positions / needed * needed,
            .set = [](PlanPoint& p, std::int64_t value) { p.seq = value; }};
  }
  const std::int64_t unit = sharding.parts();
  return {.unit = unit,
          .most = kMostLayers / unit * unit,
          .offset = sharding.short_ends ? 2 : 0,
          .set = [](PlanPoint& p, std::int64_t value) { p.config.layers = value; }};
}

/// What memory falls by, at most, where the loss goes to one more chunk: the logits of one and their
/// gradients.
double loss_bytes(const PlanPoint& point) {
  constexpr std::int64_t kWhole = std::int64_t{1} << 40U;  // of frameworks without chunks
  return point.step.loss_chunk_bytes < kWhole ? 2 * static_cast<double>(point.step.loss_chunk_bytes) : 0;
}

/// Numbers of GPUs that --smallest tries: all up to a node, then whole nodes, and the most.
std::int64_t next_count(std::int64_t count, std::int64_t node, std::int64_t most) {
  return std::min(most, count < node ? count + 1 : (count / node + 1) * node);
}

/// The fewest GPUs that some split fits. More of them need not fit, too: what divides the batch and the
/// layers does. So each number is tried, up to a few nodes, and beyond them up to the first power of two that
/// fits.
std::optional<std::int64_t> fewest_that_fit(const std::function<bool(std::int64_t)>& fits, std::int64_t node,
                                            std::int64_t most) {
  constexpr std::int64_t kFewNodes = 8;
  const std::int64_t few = std::min(most, kFewNodes * node);
  const auto first_of = [&](std::int64_t from, std::int64_t to) -> std::optional<std::int64_t> {
    for (std::int64_t count = from;; count = next_count(count, node, most)) {
      if (fits(count)) return count;
      if (count >= to) return std::nullopt;
    }
  };
  if (const auto found = first_of(1, few); found || few == most) return found;
  std::int64_t enough = few;
  while (enough < most) {
    enough = std::min(most, 2 * enough);
    if (fits(enough)) return first_of(next_count(few, node, most), enough);
  }
  return std::nullopt;
}

/// The largest of `whole` that fits, and the next one with what it would need.
void add_largest(const std::string& what, const PlanPoint& whole, const Setting& setting, Plans& plans) {
  const Growth growth = growth_of(what, whole);
  const auto planned = [&](std::int64_t units) {
    PlanPoint point = whole;
    growth.set(point, growth.value(units));
    return std::pair(point, perfmodel::make_plan(point, setting));
  };
  const std::int64_t most = growth.units();
  // Of short ends a part of one layer has none left for the first.
  std::int64_t fits = 0;
  std::int64_t too_large = what == "layers" && whole.step.sharding.short_ends ? 2 : 1;
  while (too_large <= most && planned(too_large).second.fits) {
    fits = too_large;
    too_large = too_large < most ? std::min(2 * too_large, most) : most + 1;
  }
  while (too_large - fits > 1) {
    const std::int64_t middle = fits + (too_large - fits) / 2;
    (planned(middle).second.fits ? fits : too_large) = middle;
  }
  // Memory falls where the loss goes to one more chunk: a larger value may fit again.
  constexpr std::int64_t kMostTried = 64;
  const double spare_bytes = what == "layers" ? 0 : loss_bytes(whole);
  for (std::int64_t units = too_large + 1; spare_bytes > 0 && units <= most; ++units) {
    const perfmodel::Plan plan = planned(units).second;
    if (plan.fits) fits = units;
    if (units - fits > kMostTried || plan.memory.total() - spare_bytes > plan.memory_limit_bytes) break;
  }
  too_large = fits + 1;
  if (fits > 0) {
    auto [point, plan] = planned(fits);
    plans.add(std::move(point), setting, std::move(plan),
              fmt::format("--{} {} is the largest that fits{}", what, growth.value(fits),
                          too_large > most ? ": the maximum possible" : ""));
  }
  if (too_large <= most) {
    auto [point, plan] = planned(too_large);
    std::string reason = fmt::format("--{} {}: {}", what, growth.value(too_large), needs(plan));
    plans.add(std::move(point), setting, std::move(plan), std::move(reason));
  }
}

}  // namespace

void Plans::add(PlanPoint point, const Setting& setting, perfmodel::Plan plan, std::string reason) {
  points.push_back(std::move(point));
  plans.push_back(std::move(plan));
  runs.push_back(
      {.point = &points.back(), .setting = &setting, .plan = &plans.back(), .reason = std::move(reason)});
}

void for_each_point(const PlanOptions& options, const std::vector<Setting>& settings,
                    const std::function<void(PlanPoint, const Setting&)>& add) {
  for (const Setting& setting : settings) {
    for (const PlanPoint& base : points_of(options, setting)) {
      for (const std::int64_t gpus : gpus_of(options)) {
        for (const compile::Sharding& sharding : shardings_of(options, gpus)) {
          for (const std::int64_t global_batch : global_batches_of(options))
            add(split_point(base, setting.framework, sharding, global_batch), setting);
        }
      }
    }
  }
}

void plan_all(const PlanOptions& options, Plans& plans) {
  for_each_point(options, plans.settings, [&](PlanPoint point, const Setting& setting) {
    perfmodel::Plan plan = perfmodel::make_plan(point, setting);
    plans.add(std::move(point), setting, std::move(plan));
  });
}

void search_all(const PlanOptions& options, Plans& plans) {
  const auto gpus = parse_integers("--gpus", options.gpus);
  if (gpus.size() != 1) throw core::UsageError("--search needs one --gpus N");
  const auto top = static_cast<std::size_t>(parse_integer("--top", options.top));
  for (const Setting& setting : plans.settings) {
    for (const PlanPoint& base : points_of(options, setting)) {
      const bool is_kept = !options.record.empty() || !options.html.empty();
      auto found = perfmodel::search(
          base, setting, degree("--gpus", gpus.front()), global_batch_of(options), top,
          is_kept ? perfmodel::SearchFor::frontier : perfmodel::SearchFor::best, parts_of(options));
      note_search(found, top, setting.memory_limit_bytes);
      const std::size_t first = plans.runs.size();
      const std::size_t shown = first + std::min(top, found.candidates.size());
      std::ranges::move(found.frontier, std::back_inserter(found.candidates));
      for (perfmodel::Candidate& candidate : found.candidates)
        plans.add(std::move(candidate.point), setting, std::move(candidate.plan),
                  std::move(candidate.reason));
      plans.searched.insert(plans.searched.end(), plans.runs.begin() + static_cast<std::ptrdiff_t>(first),
                            plans.runs.end());
      plans.runs.resize(shown);
    }
  }
}

void plan_scaling(const PlanOptions& options, Plans& plans) {
  if (options.scaling != "strong" && options.scaling != "weak")
    throw core::UsageError(fmt::format("--scaling {}: expected strong or weak", options.scaling));
  const auto gpus = parse_integers("--gpus", options.gpus);
  if (gpus.size() < 2) throw core::UsageError("--scaling needs several --gpus N,N,..");
  for (const Setting& setting : plans.settings) {
    for (const PlanPoint& base : points_of(options, setting)) {
      const std::size_t first = plans.runs.size();
      std::int64_t first_batch = global_batch_of(options);
      for (const std::int64_t count : gpus) {
        std::int64_t batch = first_batch == 0 ? 0 : scaled_batch(options, first_batch, count, gpus.front());
        if (options.search) {
          auto found = perfmodel::search(base, setting, degree("--gpus", count), batch, 1,
                                         perfmodel::SearchFor::best, parts_of(options));
          note_search(found, 1, setting.memory_limit_bytes);
          perfmodel::Candidate& best = found.candidates.front();
          plans.add(std::move(best.point), setting, std::move(best.plan));
        } else {
          const auto sharding = single(shardings_of(options, count), "--scaling");
          PlanPoint point = split_point(base, setting.framework, sharding, batch);
          perfmodel::Plan plan = perfmodel::make_plan(point, setting);
          plans.add(std::move(point), setting, std::move(plan));
        }
        if (first_batch == 0) first_batch = plans.points.back().global_batch();
      }
      compare_curve(plans.runs, first);
    }
  }
}

void plan_largest(const PlanOptions& options, Plans& plans) {
  if (options.largest != "batch" && options.largest != "seq" && options.largest != "layers")
    throw core::UsageError(fmt::format("--largest {}: expected batch, seq or layers", options.largest));
  if (options.largest == "batch" && !options.global_batch.empty())
    throw core::UsageError("--largest batch is about one micro-batch of each rank: leave out --global-batch");
  if (options.config.text(options.largest).find(',') != std::string::npos) {
    throw core::UsageError(
        fmt::format("--largest {} finds one: leave out the list of --{}", options.largest, options.largest));
  }
  for_each_point(options, plans.settings, [&](const PlanPoint& whole, const Setting& setting) {
    add_largest(options.largest, whole, setting, plans);
  });
}

void plan_smallest(const PlanOptions& options, Plans& plans) {
  constexpr std::int64_t kMost = 1 << 16;
  const std::int64_t most = options.gpus.empty() ? kMost : parse_integer("--gpus", options.gpus);
  for (const Setting& setting : plans.settings) {
    const auto base = single(points_of(options, setting), "--smallest");
    const std::int64_t batch = global_batch_of(options);
    std::vector<std::int64_t> failed;
    const auto fits = [&](std::int64_t count) {
      const int gpus = degree("--gpus", count);
      const auto found = perfmodel::may_fit(base, setting, gpus)
                             ? perfmodel::leanest(base, setting, gpus, batch, 0)
                             : std::nullopt;
      const bool is_enough = found && found->plan.fits;
      if (!is_enough) failed.push_back(count);
      return is_enough;
    };
    const auto fewest = fewest_that_fit(fits, setting.cluster.per_node, most);
    if (fewest) {
      auto found = perfmodel::search(base, setting, degree("--gpus", *fewest), batch, 1);
      perfmodel::Candidate& best = found.candidates.front();
      plans.add(std::move(best.point), setting, std::move(best.plan), "the fewest GPUs on which it fits");
    }
    // The most of those that are fewer, or of all; not all of them have a split.
    std::ranges::sort(failed, std::greater());
    constexpr std::size_t kClosest = 4;
    std::optional<perfmodel::Candidate> closest;
    for (const std::int64_t count : failed) {
      if (fewest && count > *fewest) continue;
      closest = perfmodel::leanest(base, setting, degree("--gpus", count), batch, kClosest);
      if (closest) break;
    }
    if (closest) {
      std::string reason = needs(closest->plan);
      plans.add(std::move(closest->point), setting, std::move(closest->plan), std::move(reason));
    }
    if (!fewest && !closest)
      throw core::UsageError(fmt::format("--smallest: no split of up to {} GPUs divides the batch", most));
  }
}

}  // namespace rooflm::cli
