// Collectives of recorded programs; those of several ranks on one clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// One collective, or message, of one run.
struct CollectiveCall {
  std::size_t run = 0;  ///< in the set
  std::string op{}, dtype{}, communicator{};
  std::int64_t sequence = 0;          ///< among those of its kind in the communicator
  std::int64_t ranks = 0, rank = -1;  ///< 0 ranks, rank -1: not known
  bool is_message = false;            ///< to or from one other rank
  bool has_kernel = true;             ///< else it is only known when the host asked for it, and times are 0
  bool is_counted = true;             ///< in a step, where the run has any
  std::int64_t bytes = 0;             ///< of this rank's count
  std::int64_t start_ns = 0;          ///< of its kernel, on the clock of its record
  double start_s = 0,
         time_s = 0;  ///< of its kernel, or the share of one that several have; on the common clock
  /// Until the last rank of the communicator began the same one; nothing where fewer than two of them are
  /// here.
  std::optional<double> waiting_s{};
  bool is_last = false;

  /// Bytes of the whole, as NVIDIA/nccl-tests counts them: what all ranks together put into an all-gather,
  /// take out of a reduce-scatter, send in an all-to-all.
  [[nodiscard]] double size() const;
  /// Bus bandwidth / (size / time): 2 (n-1)/n of an all-reduce, (n-1)/n of an all-gather, a reduce-scatter
  /// and an all-to-all, 1 of the others; nothing where the number of ranks is not known. Source:
  /// NVIDIA/nccl-tests, doc/PERFORMANCE.md.
  [[nodiscard]] std::optional<double> bus_factor() const;
  /// Without the waiting, as far as that is known.
  [[nodiscard]] double transfer_s() const { return time_s - waiting_s.value_or(0); }
};

struct CollectiveCalls {
  std::vector<CollectiveCall> calls{};  ///< of steps that are no warm-up, where there are steps
  std::vector<std::int64_t> steps{};    ///< of each run; 0: its calls are of no step
  std::vector<double> zeros_s{};        ///< of each run's clock, after that of the earliest
  bool has_common_clock = false;        ///< all runs count on the same clock exactly; else by the time of day
};

/// Of all runs. Kernels that did several collectives count for each by its bytes.
CollectiveCalls collective_calls(const RecordSet& set);
/// Of one run by itself, on its own clock: nobody's waiting is known.
std::vector<CollectiveCall> collective_calls(const RunData& run);

}  // namespace rooflm::report
