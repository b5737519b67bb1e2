// The ranks of a job on one timeline: those that a record of a split step keeps, or records of one job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "report/run_data.h"
#include "report/timeline.h"

namespace rooflm::report {

/// What one rank of a job did.
struct RankRun {
  const RunData* run = nullptr;
  int rank = 0;
  std::int64_t offset_ns = 0;  ///< what to add to its times for the clock of the first
};

/// When a rank waited in collectives until the last of its group had begun them, on the first rank's clock.
struct RankWait {
  int rank = 0;
  std::int64_t start_ns = 0, end_ns = 0;
};

/// Which runs of a set are ranks of one job. Records belong together where their collectives have one
/// communicator (CollectiveCall); then the clocks are as those of the view `collectives`.
class JobRanks {
 public:
  /// Borrows `set`.
  explicit JobRanks(const RecordSet& set);

  /// The ranks of the job that `run` (its place) is the first of, in their order; none where it is alone or
  /// another is the first.
  [[nodiscard]] const std::vector<RankRun>& ranks(std::size_t run) const { return jobs_[run].ranks; }
  /// All ranks of its job where it is the first: steps in which each took part, lanes of one rank after those
  /// of another, and a lane for communication that nothing hides, waiting for others apart. Otherwise
  /// timeline_of, with a note that names the run whose timeline has all.
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
