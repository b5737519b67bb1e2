// The best way to run a model on a number of devices.
#include "perfmodel/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <iterator>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "perfmodel/layer_book.h"
#include "perfmodel/role.h"

namespace rooflm::perfmodel {
namespace {

constexpr std::array kRecompute = {passes::Recompute::none, passes::Recompute::selective,
                                   passes::Recompute::full};
constexpr std::int64_t kMostMicroBatch = 16;
constexpr std::int64_t kSequencesPerDevice = 4;
/// From here on ranks may share a sequence.
constexpr std::int64_t kLongSequence = 32768;

std::vector<int> divisors(int number, int most) {
  std::vector<int> all;
  for (int i = 1; i <= std::min(number, most); ++i)
    if (number % i == 0) all.push_back(i);
  return all;
}

/// All that the model and the batch allow; what is not allowed is left out, not an error.
std::vector<PlanPoint> points_of(const PlanPoint& base, const Setting& setting, int gpus,
                                 std::int64_t global_batch, std::span<const int> interleaved) {
  std::vector<PlanPoint> points;
  const auto add = [&](const compile::Sharding& sharding) {
    for (std::int64_t b = 1; b <= kMostMicroBatch; ++b) {
      if (global_batch % (b * sharding.data) != 0) continue;
      PlanPoint point = base;
      point.step.sharding = sharding;
      point.micro_batch = b;
      point.micro_batches = global_batch / (b * sharding.data);
      try {
        compile::check(sharding, point.config, b, point.seq, static_cast<int>(point.micro_batches));
      } catch (const core::UsageError&) {
        continue;
      } catch (const core::Unavailable&) {
        continue;
      }
      points.push_back(std::move(point));
    }
  };
  const std::int64_t layers = base.config.layers;
  const auto add_zeros = [&](int cp, int tp, int pp, int interleave) {
    const int parts = pp * interleave;
    if (parts > layers || (layers % parts != 0 && (layers + 2) % parts != 0)) return;
    compile::Sharding sharding{.data = gpus / cp / tp / pp,
                               .context = cp,
                               .tensor = tp,
                               .pipeline = pp,
                               .interleave = interleave,
                               .short_ends = layers % parts != 0};
    fit_to_framework(sharding, setting.framework);
    for (sharding.zero = 0; sharding.zero <= (sharding.data_ranks() > 1 ? 3 : 0); ++sharding.zero)
      add(sharding);
  };
  const bool is_long = base.seq >= kLongSequence && base.step.attention == passes::AttentionKind::flash;
  for (const int cp : divisors(gpus, is_long ? setting.cluster.per_node : 1)) {
    for (const int tp : divisors(gpus / cp, setting.cluster.per_node)) {
      for (const int pp : divisors(gpus / cp / tp, static_cast<int>(layers))) {
        for (const int interleave : pp > 1 ? interleaved : std::span<const int>(kNotInterleaved))
          add_zeros(cp, tp, pp, interleave);
      }
    }
  }
  return points;
}

/// What a slower plan spends most of its extra time on.
std::string why_slower(const Plan& plan, const Plan& best) {
  const std::pair<const char*, double> terms[] = {{"compute", plan.compute_s - best.compute_s},
                                                  {"exposed communication", plan.exposed_s - best.exposed_s},
                                                  {"ops slowed by overlap", plan.slowed_s - best.slowed_s},
                                                  {"bubble", plan.bubble_s - best.bubble_s},
                                                  {"the host", plan.host_s - best.host_s}};
  const auto* most = std::ranges::max_element(terms, {}, [](const auto& term) { return term.second; });
  return fmt::format("{:.1f} % slower, mostly {} (+{})", 100 * (plan.step_s / best.step_s - 1), most->first,
                     core::format_seconds(std::max(0.0, most->second)));
}

/// The fastest that were found.
class Best {
 public:
  explicit Best(std::size_t count) : count_(count) {}
  void add(double step_s) {
    const std::lock_guard lock(mutex_);
    steps_.insert(std::ranges::upper_bound(steps_, step_s), step_s);
    if (steps_.size() > count_) steps_.pop_back();
  }
  /// What is slower is none of them.
  [[nodiscard]] double slowest_s() {
    const std::lock_guard lock(mutex_);
    return steps_.size() < count_ ? std::numeric_limits<double>::infinity() : steps_.back();
  }

 private:
  std::size_t count_;
  std::mutex mutex_;
  std::vector<double> steps_;  ///< ascending
};

/// What nothing beats in both time and memory, of what was found.
class Frontier {
 public:
  /// False where another one is as good in both.
  bool add(double step_s, double bytes) {
    const std::lock_guard lock(mutex_);
    if (is_beaten(step_s, bytes)) return false;
    std::erase_if(plans_, [&](const auto& plan) { return plan.first >= step_s && plan.second >= bytes; });
    plans_.emplace_back(step_s, bytes);
    return true;
  }
  /// Whether what takes at least as much is beaten.
  [[nodiscard]] bool beats(double least_s, double least_bytes) {
    const std::lock_guard lock(mutex_);
    return is_beaten(least_s, least_bytes);
  }
  /// Whether it is still there.
  [[nodiscard]] bool has(double step_s, double bytes) {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(plans_, std::pair(step_s, bytes)) != plans_.end();
  }

 private:
  [[nodiscard]] bool is_beaten(double step_s, double bytes) const {
    return std::ranges::any_of(
        plans_, [&](const auto& plan) { return plan.first <= step_s && plan.second <= bytes; });
  }
  std::mutex mutex_;
  std::vector<std::pair<double, double>> plans_;  ///< seconds, bytes
};

/// What became of one split.
struct Tried {
  std::vector<Candidate> candidates{};  ///< with whole plans
  std::vector<Candidate> frontier{};    ///< with others that may be on it
  std::size_t too_large = 0, too_slow = 0;
  std::string unplanned{};
  std::exception_ptr error{};  ///< anything else
};

class Search {
 public:
  Search(const Setting& setting, std::size_t top, SearchFor what)
      : setting_(&setting), top_(top), what_(what), layers_(setting), best_(top) {}

  /// The least time of the first kind of recompute that may fit. What cannot be planned comes first:
  /// try_point says why.
  double least_seconds(PlanPoint point) {
    try {
      for (const passes::Recompute recompute : kRecompute) {
        point.step.recompute = recompute;
        if (layers_.least_bytes(point) <= setting_->memory_limit_bytes) return layers_.least_seconds(point);
      }
    } catch (const std::exception&) {
      return 0;
    }
    return std::numeric_limits<double>::infinity();
  }

  /// With no recompute, then with more of it, until the plan fits: what need not recompute is faster without.
  Tried try_point(PlanPoint point, Forwards& forwards) {
    Tried tried;
    try {
      plan_kinds(point, forwards, tried);
    } catch (const core::Unavailable& error) {
      tried.unplanned = error.what();
    } catch (const core::UsageError& error) {  // a combination that a pass refuses
      tried.unplanned = error.what();
    } catch (...) {
      tried.error = std::current_exception();
    }
    return tried;
  }

  [[nodiscard]] bool is_on_frontier(const Plan& plan) {
    return frontier_.has(plan.step_s, plan.memory.total());
  }

 private:
  void plan_kinds(PlanPoint& point, Forwards& forwards, Tried& tried) {
    const bool is_every = top_ == kEveryCandidate;
    for (std::size_t kind = 0; kind < kRecompute.size(); ++kind) {
      point.step.recompute = kRecompute.at(kind);
      if (!is_every && layers_.least_bytes(point) > setting_->memory_limit_bytes) {
        ++tried.too_large;
        continue;
      }
      const double slower_than_s = best_.slowest_s();
      if (!is_every && layers_.least_seconds(point) > slower_than_s) {
        ++tried.too_slow;
        return plan_for_frontier(point, kind, forwards, tried);
      }
      Plan plan = make_plan(point, *setting_, forwards,
                            {.when_too_large = !is_every,
                             .is_rough = !is_every && what_ != SearchFor::frontier,
                             .slower_than_s = slower_than_s});
      if (plan.is_least && plan.fits && plan.is_whole && plan.step_s <= slower_than_s)
        plan = make_plan(point, *setting_, forwards, {.when_too_large = true});
      const bool fits = plan.fits;
      const bool is_whole = plan.is_whole;
      if (!fits) ++tried.too_large;
      if (fits && !is_whole) ++tried.too_slow;
      if (fits && is_whole) {
        best_.add(plan.step_s);
        frontier_.add(plan.step_s, plan.memory.total());
      }
      if (is_whole) tried.candidates.push_back({.point = point, .plan = std::move(plan)});
      if (fits) return plan_for_frontier(point, is_whole ? kind + 1 : kind, forwards, tried);
    }
  }

  /// With the kinds of recompute from that on.
  void plan_for_frontier(PlanPoint& point, std::size_t kind, Forwards& forwards, Tried& tried) {
    if (what_ != SearchFor::frontier) return;
    for (; kind < kRecompute.size(); ++kind) {
      point.step.recompute = kRecompute.at(kind);
      const double least_bytes = layers_.least_bytes(point);
      if (least_bytes > setting_->memory_limit_bytes) continue;
      if (frontier_.beats(layers_.least_seconds(point), least_bytes)) continue;
      Plan plan = make_plan(point, *setting_, forwards, {.when_too_large = true});
      if (!plan.fits || !plan.is_whole || !frontier_.add(plan.step_s, plan.memory.total())) continue;
      tried.frontier.push_back({.point = point, .plan = std::move(plan)});
    }
  }

  const Setting* setting_;
  std::size_t top_;
  SearchFor what_;
  LayerBook layers_;
  Best best_;
  Frontier frontier_;
};

/// work(i) for i < count, on all cores. `make_work` makes the function of one thread.
template <class MakeWork>
void on_all_cores(std::size_t count, MakeWork make_work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    try {
      auto work = make_work();
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) helpers.emplace_back(run);
    run();
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

/// Those that may be fastest come first.
std::vector<Tried> try_all(const std::vector<PlanPoint>& points, const Setting& setting, std::size_t top,
                           SearchFor what) {
  std::vector<Tried> tried(points.size());
  Search search(setting, top, what);
  std::vector<std::size_t> order(points.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (top != kEveryCandidate) {
    std::vector<double> least_s(points.size());
    on_all_cores(points.size(),
                 [&] { return [&](std::size_t i) { least_s[i] = search.least_seconds(points[i]); }; });
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return least_s[i]; });
  }
  on_all_cores(points.size(), [&] {
    return [&, forwards = Forwards()](std::size_t i) mutable {
      tried[order[i]] = search.try_point(points[order[i]], forwards);
    };
  });
  for (Tried& one : tried)
    std::erase_if(one.frontier, [&](const Candidate& found) { return !search.is_on_frontier(found.plan); });
  return tried;
}

/// Throws what stopped a plan, unless it is that there is none.
SearchResult gather(std::vector<Tried> tried, std::string& unplanned) {
  SearchResult result;
  for (Tried& one : tried) {
    if (one.error) std::rethrow_exception(one.error);
    if (!one.unplanned.empty()) unplanned = one.unplanned;
    result.too_large += one.too_large;
    result.too_slow += one.too_slow;
    for (Candidate& candidate : one.candidates) {
      result.planned += candidate.plan.fits ? 1 : 0;
      result.candidates.push_back(std::move(candidate));
    }
    std::ranges::move(one.frontier, std::back_inserter(result.frontier));
  }
  result.tried = result.planned + result.too_large + result.too_slow;
  return result;
}

/// Fastest first, and why each is not the best.
void rank_frontier(std::vector<Candidate>& frontier, const Plan& best) {
  std::ranges::stable_sort(frontier, {}, [](const Candidate& candidate) { return candidate.plan.step_s; });
  for (Candidate& candidate : frontier)
    candidate.reason = why_slower(candidate.plan, best) + "; nothing faster needs less memory";
}

/// Fastest first, then by memory; and why each is not the best.
void rank(std::vector<Candidate>& candidates) {
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    if (a.plan.fits != b.plan.fits) return a.plan.fits;
    return a.plan.fits ? a.plan.step_s < b.plan.step_s : a.plan.memory.total() < b.plan.memory.total();
  });
  const Plan& best = candidates.front().plan;
  for (Candidate& candidate : candidates) {
    if (!candidate.plan.fits) {
      candidate.reason = fmt::format("needs {} of {}", core::format_bytes(candidate.plan.memory.total()),
                                     core::format_bytes(candidate.plan.memory_limit_bytes));
    } else if (&candidate.plan == &best) {
      candidate.reason = "best";
    } else {
      candidate.reason = why_slower(candidate.plan, best);
    }
  }
}

}  // namespace

SearchResult search(const PlanPoint& base, const Setting& setting, int gpus, std::int64_t global_batch,
                    std::size_t top, SearchFor what, std::span<const int> interleaved) {
  require_links(setting.cluster, setting.device, gpus);
  if (global_batch == 0) global_batch = kSequencesPerDevice * gpus;
  const std::vector<PlanPoint> points = points_of(base, setting, gpus, global_batch, interleaved);
  std::string unplanned;
  SearchResult result = gather(try_all(points, setting, top, what), unplanned);
  // Fewer fit than are asked for: the others want their plans, too.
  if (result.candidates.size() < top && top != kEveryCandidate)
    result = gather(try_all(points, setting, kEveryCandidate, what), unplanned);
  if (result.candidates.empty()) {
    if (!unplanned.empty()) throw core::Unavailable(unplanned);
    throw core::UsageError(fmt::format(
        "no split of {} devices fits {} layers, {} heads and a global batch of {}: another --gpus or "
        "--global-batch",
        gpus, base.config.layers, base.config.heads, global_batch));
  }
  rank(result.candidates);
  if (what != SearchFor::frontier && top != kEveryCandidate) {
    // What is shown, exactly.
    on_all_cores(std::min(top, result.candidates.size()), [&] {
      return [&, forwards = Forwards()](std::size_t i) mutable {
        Candidate& shown = result.candidates[i];
        shown.plan = make_plan(shown.point, setting, forwards, {});
      };
    });
  }
  rank_frontier(result.frontier, result.candidates.front().plan);
  return result;
}

bool may_fit(const PlanPoint& base, const Setting& setting, int gpus) {
  constexpr double kSafely = 0.97;
  const double state_bytes =
      LayerBook::state_bytes(base) * static_cast<double>(model::parameter_count(base.config)) / gpus;
  return kSafely * state_bytes + setting.framework.context_bytes <= setting.memory_limit_bytes;
}

namespace {

/// A split with a kind of recompute, and the least that it keeps in memory.
struct Bounded {
  PlanPoint point{};
  double least_bytes = 0;
};

/// Leanest first, and nothing whose model alone is too large, unless that is asked for. What cannot be
/// planned has no bound: plans of it say why.
std::vector<Bounded> bounded_points(const std::vector<PlanPoint>& points, const Setting& setting,
                                    bool has_hopeless) {
  LayerBook layers(setting);
  std::vector<Bounded> all;
  for (const PlanPoint& point : points) {
    if (!has_hopeless && layers.least_model_bytes(point) > setting.memory_limit_bytes) continue;
    for (const passes::Recompute recompute : kRecompute) {
      all.push_back({.point = point});
      all.back().point.step.recompute = recompute;
    }
  }
  on_all_cores(all.size(), [&] {
    return [&](std::size_t i) {
      try {
        all[i].least_bytes = layers.least_bytes(all[i].point);
      } catch (const std::exception&) {
        all[i].least_bytes = 0;
      }
    };
  });
  std::ranges::stable_sort(all, {}, &Bounded::least_bytes);
  return all;
}

}  // namespace

std::optional<Candidate> leanest(const PlanPoint& base, const Setting& setting, int gpus,
                                 std::int64_t global_batch, std::size_t few) {
  require_links(setting.cluster, setting.device, gpus);
  if (global_batch == 0) global_batch = kSequencesPerDevice * gpus;
  const std::vector<Bounded> all =
      bounded_points(points_of(base, setting, gpus, global_batch, kNotInterleaved), setting, few > 0);
  const auto within = static_cast<std::size_t>(std::ranges::count_if(
      all, [&](const Bounded& one) { return one.least_bytes <= setting.memory_limit_bytes; }));
  std::vector<Tried> tried(std::min(all.size(), std::max(within, few)));
  std::atomic<bool> is_found = false;
  on_all_cores(tried.size(), [&] {
    return [&, forwards = Forwards()](std::size_t i) mutable {
      if (is_found) return;
      try {
        Plan plan = make_plan(all[i].point, setting, forwards, {.when_too_large = true, .is_rough = true});
        if (plan.fits) is_found = true;
        tried[i].candidates.push_back({.point = all[i].point, .plan = std::move(plan)});
      } catch (const core::Unavailable& error) {
        tried[i].unplanned = error.what();
      } catch (const core::UsageError& error) {  // a combination that a pass refuses
        tried[i].unplanned = error.what();
      } catch (...) {
        tried[i].error = std::current_exception();
      }
    };
  });
  std::string unplanned;
  SearchResult result = gather(std::move(tried), unplanned);
  if (result.candidates.empty() && !unplanned.empty()) throw core::Unavailable(unplanned);
  if (result.candidates.empty()) return std::nullopt;
  const auto order = [](const Candidate& one) { return std::pair(!one.plan.fits, one.plan.memory.total()); };
  Candidate& least = *std::ranges::min_element(result.candidates, {}, order);
  least.plan = make_plan(least.point, setting);
  return std::move(least);
}

}  // namespace rooflm::perfmodel
