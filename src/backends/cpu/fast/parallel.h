// Static OpenMP partitions: which thread computes what depends only on the range and the thread count.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace rooflm::backends::cpu {

/// Number of threads of a parallel_for called here: 1 inside another parallel region.
inline int thread_count() { return omp_in_parallel() != 0 ? 1 : omp_get_max_threads(); }

/// Splits [0, n) into consecutive parts, one per thread, and calls `body(begin, end)` on each. Borders are
/// multiples of `grain` (> 0). Ranges of at most one grain, and calls from inside a parallel region, run on
/// the calling thread. `body` must not throw. Returns when all parts are done.
template <class Body>
void parallel_for(std::int64_t n, std::int64_t grain, Body&& body) {
  if (n <= 0) return;
  const std::int64_t grains = (n + grain - 1) / grain;
  if (grains == 1 || thread_count() == 1) {
    body(std::int64_t{0}, n);
    return;
  }
  // Always the whole team, even if some threads are idle: libgomp ends threads when a team shrinks and must
  // restart them later.
#pragma omp parallel
  {
    const std::int64_t count = omp_get_num_threads();
    const std::int64_t me = omp_get_thread_num();
    const std::int64_t begin = std::min(n, grains * me / count * grain);
    const std::int64_t end = std::min(n, grains * (me + 1) / count * grain);
    if (begin < end) body(begin, end);
  }
}

/// Calls `body(index, worker)` for every index in [0, n), handing out indices dynamically in rising order.
/// For tasks of uneven size whose results do not depend on the thread. Concurrent tasks have different
/// workers, in [0, thread_count()). `body` must not throw.
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
