// Teams of OpenMP threads that are as large as asked for.
#include "backends/thread_team.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <latch>
#include <thread>
#include <vector>

#include "core/control_groups.h"
#include "core/error.h"

namespace rooflm::backends {
namespace {

/// Has `count` threads at once, which do nothing.
void start_and_end(int count) {
  std::latch end(1);
  std::vector<std::jthread> threads;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([&end] { end.wait(); });
  } catch (...) {
    end.count_down();
    throw;
  }
  end.count_down();
}

}  // namespace

int most_threads() { return std::min(omp_get_num_procs(), omp_get_thread_limit()); }

int default_team() {
  static const double share = std::ceil(core::ControlGroups().processors());
  const int most = most_threads();
  return share < most ? static_cast<int>(share) : most;
}

void allow_whole_teams() {
  if (omp_get_dynamic() != 0) omp_set_dynamic(0);
  if (omp_get_max_active_levels() < 1) omp_set_max_active_levels(1);
}

void require_team(int threads) {
  if (const int limit = omp_get_thread_limit(); threads > limit) {
    throw core::UsageError(
        fmt::format("--threads {}: OMP_THREAD_LIMIT allows this process only {}", threads, limit));
  }
  start_and_end(threads - 1);
  allow_whole_teams();
  int team = 0;
#pragma omp parallel num_threads(threads)
#pragma omp single
  team = omp_get_num_threads();
  if (team == threads) return;
  throw core::Unavailable(
      fmt::format("OpenMP gives this process {} of {} threads: look for OMP_* in the "
                  "environment, or choose --threads {}",
                  team, threads, team));
}

}  // namespace rooflm::backends
