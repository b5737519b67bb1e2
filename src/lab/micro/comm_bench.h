// Collectives alone, between the ranks of a job: the kernels that the engines run, timed and checked.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "core/dtype.h"
#include "core/named.h"
#include "core/statistics.h"
#include "lab/job.h"
#include "measure/sampling.h"
#include "record/rows.h"

namespace rooflm::lab {

using core::name_of;

/// send_receive: each rank sends to the next of a ring and receives from the one before.
enum class CommOp : std::uint8_t { all_reduce, all_gather, reduce_scatter, send_receive };
constexpr auto names_of(CommOp) {
  return core::named<CommOp>("collective", {{CommOp::all_reduce, "all_reduce"},
                                            {CommOp::all_gather, "all_gather"},
                                            {CommOp::reduce_scatter, "reduce_scatter"},
                                            {CommOp::send_receive, "sendrecv"}});
}

/// Bus bandwidth / (size / time), so that it does not depend on the number of ranks: 2 (n-1)/n of an
/// all_reduce, (n-1)/n of an all_gather and a reduce_scatter, 1 of send_receive. Source: NVIDIA/nccl-tests,
/// doc/PERFORMANCE.md.
double bus_factor(CommOp op, int ranks);

/// One collective, as nccl-tests counts it.
struct CommProblem {
  CommOp op = CommOp::all_reduce;
  core::DType dtype = core::DType::f32;
  /// Of the larger side: what an all_reduce adds up, an all_gather ends with, a reduce_scatter begins with.
  std::int64_t bytes = 0;
  bool in_place = false;  ///< the smaller side is part of the larger one; of all_reduce they are the same
  /// Elements of one rank's part of an all_gather or reduce_scatter; otherwise of the whole.
  [[nodiscard]] std::int64_t count(int ranks) const;
  /// Whole elements on all ranks: `bytes`, or a little less.
  [[nodiscard]] std::int64_t size(int ranks) const;
  [[nodiscard]] double bus_factor(int ranks) const { return lab::bus_factor(op, ranks); }
};

struct CommResult {
  /// Seconds of one call, on the last rank to finish. A sample is the mean of `calls` back-to-back calls;
  /// ranks synchronize before each sample.
  core::Summary seconds;
  int calls = 1;
  std::int64_t wrong = 0;  ///< elements of the results of all ranks
};

struct CommCase {
  std::string dtype;
  CommProblem problem;
};
/// A case, measured: without a result it did not fit on some rank.
struct MeasuredComm {
  CommCase what;
  int ranks = 1, hosts = 1;
  std::string device, carrier;  ///< "sockets", "Open MPI", "NCCL 2.28.9", "NCCL 2.28.9 (few-blocks)"
  std::optional<CommResult> result{};
};

class CommBench {
 public:
  /// Joins the other ranks on this rank's device; all ranks do the same. Throws core::Unavailable,
  /// core::UsageError for a device that runs nothing, or not in that way.
  CommBench(Ranks ranks, const std::string& device, backends::CollectiveWay way,
            measure::SamplingOptions sampling, int sharers = 1);

  /// A signal on any rank ends measuring after the current case; throws core::Stopped if that is the first
  /// case. Throws ranks::RankLost, and core::Unavailable for what the device cannot do.
  std::vector<MeasuredComm> run(std::span<const CommCase> cases);
  /// That ended it, on all ranks; 0 for none.
  [[nodiscard]] int signal() const { return signal_; }

 private:
  CommResult measure(const CommProblem& problem);
  [[nodiscard]] bool fits(const CommProblem& problem) const;

  Ranks ranks_;
  std::string device_;
  backends::CollectiveWay way_;
  measure::SamplingOptions sampling_;
  std::unique_ptr<backends::Backend> backend_;
  int signal_ = 0;
};

/// What a record keeps of them, series "comm".
std::vector<record::Cell> cells_of(std::span<const MeasuredComm> rows);

}  // namespace rooflm::lab
