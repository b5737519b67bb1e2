// Arguments of events of Kineto's traces, as members of a JSON object. Private to exports.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "report/export/trace.h"

namespace rooflm::report {

/// The phase, place in the model and shapes of an op.
std::string op_args(const TimedOp& op);

/// The launch of a kernel on a device with so many multiprocessors; "" where nothing is known. Begins with a
/// comma.
std::string launch_args(const TraceEvent& kernel, std::int64_t multiprocessors);

/// What NCCL told of the kernels that did collectives, under the names that torch.profiler gives them.
class CollectiveArgs {
 public:
  /// `place` is that of the trace's run.
  CollectiveArgs(const Trace& trace, RankPlace place);
  /// Of a kernel; "" for one that did no collective, or of which nothing is known. Begins with a comma.
  [[nodiscard]] std::string of(const TraceEvent& kernel) const;

 private:
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> of_kernel_;  ///< by correlation and start
};

}  // namespace rooflm::report
