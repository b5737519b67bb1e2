// Teams of OpenMP threads that are as large as asked for, and that sleep while they wait.
#include "backends/thread_team.h"

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <latch>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/system/control_groups.h"

namespace {

/// The value of the first "NAME=value" of the environment.
char* find_variable(std::string_view name) {
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
    const std::string_view text = *line;
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=') {
      return *line + name.size() + 1;
    }
  }
  return nullptr;
}

}  // namespace

/// libgomp's threads spin for 300,000 rounds before they sleep, about 10 ms, which on a busy machine they
/// take from the thread that they wait for. Only GOMP_SPINCOUNT changes that, and libgomp reads it before any
/// code of an executable runs, by this function: here it finds a default of some tenths of a millisecond, in
/// which the threads of an op meet. The environment, which other programs inherit, stays as it is.
extern "C" __attribute__((visibility("default"))) char* getenv(const char* name) noexcept {
  static char spin_rounds[] = "10000";
  char* const found = find_variable(name);
  const bool is_default = found == nullptr && std::string_view(name) == "GOMP_SPINCOUNT" &&
                          find_variable("OMP_WAIT_POLICY") == nullptr;
  return is_default ? spin_rounds : found;
}

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
