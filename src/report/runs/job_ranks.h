// The ranks of a job on one timeline: from one record of a split step, or from several records of a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "report/model/run_data.h"
#include "report/page/timeline.h"

namespace rooflm::report {

/// What one rank of a job ran.
struct RankRun {
  const RunData* run = nullptr;
  int rank = 0;
  std::int64_t offset_ns = 0;  ///< what to add to its times for the clock of the first
};

/// When a rank waited in collectives for the last rank of its group to start, on the first rank's clock.
struct RankWait {
  int rank = 0;
  std::int64_t start_ns = 0, end_ns = 0;
};

/// Which runs of a set are ranks of one job. Records belong together if their collectives share a
/// communicator (CollectiveCall); clocks are then aligned as in the view `collectives`.
class JobRanks {
 public:
  /// Borrows `set`.
  explicit JobRanks(const RecordSet& set);

  /// The ranks of the job that `run` (its place) is the first of, in their order; none where it is alone or
  /// another is the first.
  [[nodiscard]] const std::vector<RankRun>& ranks(std::size_t run) const { return jobs_[run].ranks; }
  /// For the first rank of a job, all its ranks: the steps that all of them ran, lanes rank by rank, and a
  /// lane for exposed communication in which waiting for others is separate. Otherwise timeline_of, with a
  /// note that names the run whose timeline has all ranks.
  [[nodiscard]] Timeline timeline(std::size_t run, std::size_t most_events) const;

 private:
  struct Job {
    std::vector<RankRun> ranks;
    std::vector<RankWait> waits;
    std::size_t first = 0;  ///< the run whose job it is in
  };
  void find_jobs_of_records();
  const RecordSet& set_;
  std::vector<Job> jobs_;  ///< by run
};

/// `ranks`: at least two, the first one's clock counts. See JobRanks::timeline.
Timeline timeline_of_ranks(const std::vector<RankRun>& ranks, const std::vector<RankWait>& waits,
                           std::size_t most_events);

/// Waiting of ranks whose ops and groups are known (fact "groups", record::Op::variant): the n-th call of a
/// group in a step is the same one on all of its ranks.
std::vector<RankWait> waits_of_ops(const std::vector<RankRun>& ranks);

}  // namespace rooflm::report
