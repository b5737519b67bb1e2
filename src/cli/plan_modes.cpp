// Plans of more than one size: scaling curves, the largest that fits, the smallest cluster.
#include "cli/plan_modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
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
        fmt::format("{} wants one configuration, the options name {}", what, values.size()));
  return std::move(values.front());
}

std::int64_t global_batch_of(const PlanOptions& options) { return single(global_batches_of(options), "it"); }

std::string needs(const perfmodel::Plan& plan) {
  return fmt::format("needs {} of {}", core::format_bytes(plan.memory.total()),
                     core::format_bytes(plan.memory_limit_bytes));
}

void note_search(const perfmodel::SearchResult& found, std::size_t top) {
  note("{} configurations tried: {} planned to the end, {} too large, {} slower than the best {}",
       found.tried, found.planned, found.too_large, found.too_slow, top);
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

/// What --largest makes larger.
struct Growth {
  std::int64_t unit = 1, most = 1;
  std::int64_t offset = 0;  ///< less than so many units
  std::function<void(PlanPoint&, std::int64_t)> set;
};

Growth growth_of(const std::string& what, const PlanPoint& base) {
  constexpr std::int64_t kMostSequences = 1 << 20;
  constexpr std::int64_t kMostTokens = 1 << 27;
  constexpr std::int64_t kMostLayers = 100'000;
  constexpr std::int64_t kTokens = 128;
  const compile::Sharding& sharding = base.step.sharding;
  if (what == "batch")
    return {.most = kMostSequences, .set = [](PlanPoint& p, std::int64_t value) { p.micro_batch = value; }};
  if (what == "seq") {
    const std::int64_t positions = base.config.max_seq > 0 ? base.config.max_seq : kMostTokens;
    const std::int64_t unit = std::min(kTokens * sharding.context * sharding.tensor, positions);
    return {.unit = unit, .most = positions, .set = [](PlanPoint& p, std::int64_t value) { p.seq = value; }};
  }
  if (what == "layers")
    return {.unit = sharding.parts(),
            .most = kMostLayers,
            .offset = sharding.short_ends ? 2 : 0,
            .set = [](PlanPoint& p, std::int64_t value) { p.config.layers = value; }};
  throw core::UsageError(fmt::format("--largest {}: there are batch, seq and layers", what));
}

}  // namespace

void Plans::add(PlanPoint point, const Setting& setting, perfmodel::Plan plan, std::string reason) {
  points.push_back(std::move(point));
  plans.push_back(std::move(plan));
  runs.push_back(
      {.point = &points.back(), .setting = &setting, .plan = &plans.back(), .reason = std::move(reason)});
}

void plan_all(const PlanOptions& options, Plans& plans) {
  for (const Setting& setting : plans.settings) {
    for (const PlanPoint& base : points_of(options, setting)) {
      for (const std::int64_t gpus : gpus_of(options)) {
        for (const compile::Sharding& sharding : shardings_of(options, gpus)) {
          for (const std::int64_t global_batch : global_batches_of(options)) {
            PlanPoint point = split_point(base, setting.framework, sharding, global_batch);
            perfmodel::Plan plan = perfmodel::make_plan(point, setting);
            plans.add(std::move(point), setting, std::move(plan));
          }
        }
      }
    }
  }
}

void search_all(const PlanOptions& options, Plans& plans) {
  const auto gpus = parse_integers("--gpus", options.gpus);
  if (gpus.size() != 1) throw core::UsageError("--search wants one --gpus N");
  const auto top = static_cast<std::size_t>(parse_integer("--top", options.top));
  for (const Setting& setting : plans.settings) {
    for (const PlanPoint& base : points_of(options, setting)) {
      const bool is_kept = !options.record.empty() || !options.html.empty();
      auto found =
          perfmodel::search(base, setting, degree("--gpus", gpus.front()), global_batch_of(options), top,
                            is_kept ? perfmodel::SearchFor::frontier : perfmodel::SearchFor::best);
      note_search(found, top);
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
    throw core::UsageError(fmt::format("--scaling {}: there are strong and weak", options.scaling));
  const auto gpus = parse_integers("--gpus", options.gpus);
  if (gpus.size() < 2) throw core::UsageError("--scaling wants several --gpus N,N,..");
  for (const Setting& setting : plans.settings) {
    for (const PlanPoint& base : points_of(options, setting)) {
      const std::size_t first = plans.runs.size();
      std::int64_t first_batch = global_batch_of(options);
      for (const std::int64_t count : gpus) {
        std::int64_t batch = first_batch == 0 ? 0 : scaled_batch(options, first_batch, count, gpus.front());
        if (options.search) {
          auto found = perfmodel::search(base, setting, degree("--gpus", count), batch, 1);
          note_search(found, 1);
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
  if (options.largest == "batch" && !options.global_batch.empty())
    throw core::UsageError("--largest batch is about one micro-batch of each rank: leave out --global-batch");
  for (const Setting& setting : plans.settings) {
    const auto base = single(points_of(options, setting), "--largest");
    const auto sharding = single(shardings_of(options, single(gpus_of(options), "--largest")), "--largest");
    const PlanPoint whole = split_point(base, setting.framework, sharding, global_batch_of(options));
    const Growth growth = growth_of(options.largest, whole);
    const auto value_of = [&](std::int64_t units) { return units * growth.unit - growth.offset; };
    const auto planned = [&](std::int64_t units) {
      PlanPoint point = whole;
      growth.set(point, value_of(units));
      return std::pair(point, perfmodel::make_plan(point, setting));
    };
    const std::int64_t most = growth.most / growth.unit;
    // Of short ends a part of one layer has none left for the first.
    std::int64_t fits = 0;
    std::int64_t too_large = options.largest == "layers" && sharding.short_ends ? 2 : 1;
    while (too_large <= most && planned(too_large).second.fits) {
      fits = too_large;
      too_large *= 2;
    }
    too_large = std::min(too_large, most + 1);
    while (too_large - fits > 1) {
      const std::int64_t middle = fits + (too_large - fits) / 2;
      (planned(middle).second.fits ? fits : too_large) = middle;
    }
    if (fits > 0) {
      auto [point, plan] = planned(fits);
      plans.add(std::move(point), setting, std::move(plan),
                fmt::format("--{} {} is the largest that fits{}", options.largest, value_of(fits),
                            too_large > most ? ": all that there can be" : ""));
    }
    if (too_large <= most) {
      auto [point, plan] = planned(too_large);
      std::string reason = fmt::format("--{} {}: {}", options.largest, value_of(too_large), needs(plan));
      plans.add(std::move(point), setting, std::move(plan), std::move(reason));
    }
  }
}

void plan_smallest(const PlanOptions& options, Plans& plans) {
  constexpr std::int64_t kMost = 1 << 16;
  const std::int64_t most = options.gpus.empty() ? kMost : parse_integer("--gpus", options.gpus);
  for (const Setting& setting : plans.settings) {
    const auto base = single(points_of(options, setting), "--smallest");
    const auto best_of = [&](std::int64_t gpus) -> std::optional<perfmodel::Candidate> {
      try {
        auto found = perfmodel::search(base, setting, degree("--gpus", gpus), global_batch_of(options), 1);
        return std::move(found.candidates.front());
      } catch (const core::UsageError&) {  // no split of so many divides the batch
        return std::nullopt;
      }
    };
    std::optional<perfmodel::Candidate> failed;
    std::optional<perfmodel::Candidate> best;
    std::int64_t fewer = 0;
    std::int64_t gpus = 1;
    const auto fits = [&](std::int64_t count) {
      auto candidate = best_of(count);
      const bool is_enough = candidate && candidate->plan.fits;
      if (candidate) (is_enough ? best : failed) = std::move(candidate);
      return is_enough;
    };
    while (!fits(gpus) && gpus < most) {
      fewer = gpus;
      gpus = std::min(2 * gpus, most);
    }
    // Whole nodes between the last two; within a node any number.
    const std::int64_t node = setting.cluster.per_node;
    while (best && gpus - fewer > node && fewer >= node) {
      const std::int64_t middle = (fewer + (gpus - fewer) / 2) / node * node;
      if (middle == fewer) break;
      (fits(middle) ? gpus : fewer) = middle;
    }
    for (std::int64_t count = fewer + 1; best && count < gpus && gpus <= node; ++count) {
      if (fits(count)) break;
    }
    if (best)
      plans.add(std::move(best->point), setting, std::move(best->plan), "the fewest GPUs that it fits");
    if (failed) {
      std::string reason = needs(failed->plan);
      plans.add(std::move(failed->point), setting, std::move(failed->plan), std::move(reason));
    }
    if (!best && !failed)
      throw core::UsageError(fmt::format("--smallest: no split of up to {} GPUs divides the batch", most));
  }
}

}  // namespace rooflm::cli
