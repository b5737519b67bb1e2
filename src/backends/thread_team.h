// Teams of OpenMP threads that are as large as asked for.
#pragma once

namespace rooflm::backends {

/// The processors of this process, or OMP_THREAD_LIMIT if that is less.
int most_threads();
/// Threads of a team by default: most_threads, or what control groups give this process of the processors'
/// time if that is less (rounded up: more threads would be stopped in turn).
int default_team();

/// Undoes OMP_DYNAMIC and OMP_MAX_ACTIVE_LEVELS=0 for the calling thread: OpenMP would make smaller teams
/// than asked for without a word, and oneDNN divides a GEMM by the number that was asked for.
void allow_whole_teams();

/// Makes sure that the calling thread's teams can have `threads` (> 0) threads. Throws core::UsageError if
/// OMP_THREAD_LIMIT is less, std::system_error if the system cannot start so many (OpenMP would end the
/// process with exit code 1), core::Unavailable if a team is smaller all the same.
void require_team(int threads);

}  // namespace rooflm::backends
