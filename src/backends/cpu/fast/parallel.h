// Static OpenMP partitions: who computes what depends on the range and the thread count alone.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace rooflm::backends::cpu {

/// Threads that a parallel_for from here would use: 1 inside another parallel region.
inline int thread_count() { return omp_in_parallel() != 0 ? 1 : omp_get_max_threads(); }

/// Calls `body(begin, end)` once per thread on consecutive parts of [0, n), whose borders are multiples of
/// `grain` (> 0). Ranges of at most one grain, and calls from inside a parallel region, run on the calling
/// thread. `body` must not throw. Returns when all parts are done.
template <class Body>
void parallel_for(std::int64_t n, std::int64_t grain, Body&& body) {
  if (n <= 0) return;
  const std::int64_t grains = (n + grain - 1) / grain;
  if (grains == 1 || thread_count() == 1) {
    body(std::int64_t{0}, n);
    return;
  }
  // Always the whole team, some of it idle: libgomp ends threads when a team shrinks and starts them again
  // later.
#pragma omp parallel
  {
    const std::int64_t count = omp_get_num_threads();
    const std::int64_t me = omp_get_thread_num();
    const std::int64_t begin = std::min(n, grains * me / count * grain);
    const std::int64_t end = std::min(n, grains * (me + 1) / count * grain);
    if (begin < end) body(begin, end);
  }
}

/// Calls `body(index, worker)` for every index in [0, n), handing out the indices one by one in rising order:
/// for tasks of uneven size whose results do not depend on who computes them. Tasks that run at the same time
/// have different workers, in [0, thread_count()). `body` must not throw.
template <class Body>
void parallel_tasks(std::int64_t n, Body&& body) {
  if (n <= 1 || thread_count() == 1) {
    for (std::int64_t i = 0; i < n; ++i) body(i, 0);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t i = 0; i < n; ++i) body(i, omp_get_thread_num());
}

}  // namespace rooflm::backends::cpu
