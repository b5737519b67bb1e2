// Teams of OpenMP threads that are as large as asked for.
#pragma once

namespace rooflm::backends {

/// Threads of a team by default: the least of the processors of this process, what its control groups give it
/// of their time (rounded up: more threads would be stopped in turn), and OMP_THREAD_LIMIT.
int default_team();

/// Undoes OMP_DYNAMIC and OMP_MAX_ACTIVE_LEVELS=0 for the calling thread: OpenMP would make smaller teams
/// than asked for without a word, and oneDNN divides a GEMM by the number that was asked for.
void allow_whole_teams();

/// Makes sure that the calling thread's teams can have `threads` (> 0) threads. Throws core::UsageError if
/// OMP_THREAD_LIMIT is less, std::system_error if the system cannot start so many (OpenMP would end the
/// process with exit code 1), core::Unavailable if a team is smaller all the same.
void require_team(int threads);

}  // namespace rooflm::backends
