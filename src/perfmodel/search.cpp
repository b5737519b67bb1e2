// The best way to run a model on a number of devices.
#include "perfmodel/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace rooflm::perfmodel {
namespace {

constexpr std::array kRecompute = {passes::Recompute::none, passes::Recompute::selective,
                                   passes::Recompute::full};
constexpr std::int64_t kMostMicroBatch = 16;
constexpr std::int64_t kSequencesPerDevice = 4;

std::vector<int> divisors(int number, int most) {
  std::vector<int> all;
  for (int i = 1; i <= std::min(number, most); ++i)
    if (number % i == 0) all.push_back(i);
  return all;
}

/// All that the model and the batch allow; what is not allowed is left out, not an error.
std::vector<PlanPoint> points_of(const PlanPoint& base, const Setting& setting, int gpus,
                                 std::int64_t global_batch) {
  std::vector<PlanPoint> points;
  const auto add = [&](const compile::Sharding& sharding) {
    for (std::int64_t b = 1; b <= kMostMicroBatch; b *= 2) {
      if (global_batch % (b * sharding.data) != 0) continue;
      PlanPoint point = base;
      point.step.sharding = sharding;
      point.micro_batch = b;
      point.micro_batches = global_batch / (b * sharding.data);
      try {
        compile::check(sharding, point.config, b, point.seq, static_cast<int>(point.micro_batches));
      } catch (const core::UsageError&) {
        continue;
      }
      points.push_back(std::move(point));
    }
  };
  for (const int tp : divisors(gpus, setting.cluster.per_node)) {
    for (const int pp : divisors(gpus / tp, static_cast<int>(base.config.layers))) {
      const int dp = gpus / tp / pp;
      const bool is_sequence_parallel = tp > 1 && setting.framework.is_sequence_parallel;
      for (int zero = 0; zero <= 3; ++zero) {
        if (zero > 0 && dp == 1) continue;
        add({.data = dp,
             .zero = zero,
             .tensor = tp,
             .sequence_parallel = is_sequence_parallel,
             .pipeline = pp});
      }
    }
  }
  return points;
}

/// What a slower plan spends most of its extra time on.
std::string why_slower(const Plan& plan, const Plan& best) {
  const std::pair<const char*, double> terms[] = {
      {"computing", plan.compute_s - best.compute_s},
      {"exposed communication", plan.exposed_s - best.exposed_s},
      {"ops slowed beside collectives", plan.slowed_s - best.slowed_s},
      {"bubble", plan.bubble_s - best.bubble_s},
      {"the host", plan.host_s - best.host_s}};
  const auto* most = std::ranges::max_element(terms, {}, [](const auto& term) { return term.second; });
  return fmt::format("{:.1f} % slower, most by {} (+{})", 100 * (plan.step_s / best.step_s - 1), most->first,
                     core::format_seconds(std::max(0.0, most->second)));
}

/// What became of one split.
struct Tried {
  std::vector<Candidate> candidates{};
  std::string unplanned{};
  std::exception_ptr error{};  ///< anything else
};

/// With no recompute, then with more of it, until the plan fits: what need not recompute is faster without.
Tried try_point(PlanPoint point, const Setting& setting) {
  Tried tried;
  try {
    for (const passes::Recompute recompute : kRecompute) {
      point.step.recompute = recompute;
      Plan plan = make_plan(point, setting);
      const bool fits = plan.fits;
      tried.candidates.push_back({.point = point, .plan = std::move(plan)});
      if (fits) break;
    }
  } catch (const core::Unavailable& error) {
    tried.unplanned = error.what();
  } catch (const core::UsageError& error) {  // a combination that a pass refuses
    tried.unplanned = error.what();
  } catch (...) {
    tried.error = std::current_exception();
  }
  return tried;
}

}  // namespace

SearchResult search(const PlanPoint& base, const Setting& setting, int gpus, std::int64_t global_batch) {
  if (global_batch == 0) global_batch = kSequencesPerDevice * gpus;
  const std::vector<PlanPoint> points = points_of(base, setting, gpus, global_batch);
  std::vector<Tried> tried(points.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < points.size(); i = next++) tried[i] = try_point(points[i], setting);
  };
  {
    std::vector<std::jthread> helpers;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) helpers.emplace_back(work);
    work();
  }
  SearchResult result;
  std::string unplanned;
  for (Tried& one : tried) {
    if (one.error) std::rethrow_exception(one.error);
    if (!one.unplanned.empty()) unplanned = one.unplanned;
    result.tried += one.candidates.size();
    for (Candidate& candidate : one.candidates) {
      result.fitting += candidate.plan.fits ? 1 : 0;
      result.candidates.push_back(std::move(candidate));
    }
  }
  if (result.candidates.empty()) {
    if (!unplanned.empty()) throw core::Unavailable(unplanned);
    throw core::UsageError(fmt::format(
        "no split of {} devices fits {} layers, {} heads and a global batch of {}: another --gpus or "
        "--global-batch",
        gpus, base.config.layers, base.config.heads, global_batch));
  }
  std::ranges::stable_sort(result.candidates, [](const Candidate& a, const Candidate& b) {
    if (a.plan.fits != b.plan.fits) return a.plan.fits;
    return a.plan.fits ? a.plan.step_s < b.plan.step_s : a.plan.memory.total() < b.plan.memory.total();
  });
  const Plan& best = result.candidates.front().plan;
  for (Candidate& candidate : result.candidates) {
    if (!candidate.plan.fits) {
      candidate.reason = fmt::format("needs {} of {}", core::format_bytes(candidate.plan.memory.total()),
                                     core::format_bytes(candidate.plan.memory_limit_bytes));
    } else if (&candidate.plan == &best) {
      candidate.reason = "best";
    } else {
      candidate.reason = why_slower(candidate.plan, best);
    }
  }
  return result;
}

}  // namespace rooflm::perfmodel
