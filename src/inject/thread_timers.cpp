// A timer for each thread of this process.
#include "inject/thread_timers.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "inject/stack_notes.h"

namespace rooflm::inject {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kMostPeriods = 64;

}  // namespace

std::uint32_t ThreadPace::add_cost(std::uint64_t ns) {
  constexpr std::uint64_t kMost = 1'000'000'000;
  constexpr std::uint64_t kOutlier = 4;
  constexpr std::uint64_t kWeight = 8;
  const std::uint64_t before = cost_ns.load(std::memory_order_relaxed);
  const std::uint64_t seen = before == 0 ? std::clamp<std::uint64_t>(ns / kOutlier, 1, kMost)
                                         : std::clamp<std::uint64_t>(ns, 1, kOutlier * before);
  const std::uint64_t mean = before == 0 ? seen : (before * (kWeight - 1) + seen + kWeight - 1) / kWeight;
  cost_ns.store(static_cast<std::uint32_t>(std::min(mean, kMost)), std::memory_order_relaxed);
  return static_cast<std::uint32_t>(std::min(seen, kMost));
}

std::uint32_t periods_between(double cost_s, double period_s, double budget, std::uint32_t now) {
  constexpr double kEnough = 2.0 / 3;  // of the budget: then it may be more often
  const auto least = [&](double share) {
    std::uint32_t periods = 1;
    while (periods < kMostPeriods && cost_s > share * budget * period_s * periods) periods *= 2;
    return periods;
  };
  const std::uint32_t needed = least(1);
  return needed >= now ? needed : std::min(now, least(kEnough));
}

void ThreadTimers::look(const std::function<bool(std::uint32_t)>& wants, double more_s) {
  std::map<std::uint32_t, Timer> found;
  std::set<std::uint32_t> there;
  std::error_code error;
  for (fs::directory_iterator task("/proc/self/task", error), last; !error && task != last;
       task.increment(error)) {
    const auto thread =
        static_cast<std::uint32_t>(std::strtoul(task->path().filename().c_str(), nullptr, 10));
    there.insert(thread);
    if (!wants(thread)) continue;
    const auto known = timers_.extract(thread);
    const Timer timer = known.empty() ? started(thread) : known.mapped();
    if (timer.pace == nullptr) continue;
    set_pace(timer, more_s);
    found[thread] = timer;
  }
  drop();  // of threads that have ended
  timers_ = std::move(found);
  free_handler_stacks(there);
}

ThreadTimers::Timer ThreadTimers::started(std::uint32_t thread) const {
  ThreadPace* pace = claim_pace();
  if (pace == nullptr) return {};
  int problem = 0;
  timer_t timer = start_timer(thread, period_s_, pace, problem);
  if (problem == 0) return {.timer = timer, .pace = pace};
  pace->is_taken = false;
  return {};
}

void ThreadTimers::set_pace(const Timer& timer, double more_s) const {
  constexpr double kNs = 1e-9;
  const std::uint32_t cost_ns = timer.pace->cost_ns;
  const std::uint32_t now = timer.pace->periods;
  const std::uint32_t needed =
      cost_ns == 0 ? 1 : periods_between(kNs * cost_ns + more_s, period_s_, budget_ / part_, now);
  const std::uint32_t periods = std::max(part_, needed);
  if (periods == now) return;
  set_timer(timer.timer, period_s_ * periods);
  timer.pace->periods = periods;
}

void ThreadTimers::end(const Timer& timer) {
  ::timer_delete(timer.timer);
  timer.pace->is_taken = false;
}

void ThreadTimers::drop() {
  for (const auto& [thread, timer] : timers_) end(timer);
  timers_.clear();
}

}  // namespace rooflm::inject
