// Times of the collectives of a split step on all ranks, on one clock, with waiting for the last rank
// separate from the transfer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/stretches.h"
#include "lab/op_moments.h"
#include "program/groups.h"
#include "ranks/transport.h"
#include "record/rows.h"

namespace rooflm::lab {

/// Kinds of calls beside those of CommOp: messages between stages of a pipeline, and barriers.
inline constexpr std::int32_t kSendCall = 16, kReceiveCall = 17, kBarrierCall = 18;

/// One collective or message of one rank in one observed step.
struct CollectiveCall {
  std::int64_t step = 0;
  std::int32_t rank = 0, ranks = 1;       ///< of how many in the group
  std::int32_t group = 0;                 ///< program::Group
  std::int32_t team = 0;                  ///< which of the groups of that kind: its first rank
  std::int32_t op = 0;                    ///< as CommOp, or kSendCall, kReceiveCall, kBarrierCall
  std::int32_t part = 0;                  ///< of the program, see parts_of
  std::int64_t bytes = 0;                 ///< program::payload_bytes
  std::int64_t start_ns = 0, end_ns = 0;  ///< on the clock of the first rank
  // Of messages:
  std::int32_t peer = -1;        ///< the other rank
  std::int32_t micro_batch = 0;  ///< that the message is of
  std::int64_t channel = 0;      ///< between the two
  [[nodiscard]] bool is_message() const { return op == kSendCall || op == kReceiveCall; }
};

/// The observed steps of one rank.
struct RankTimes {
  double step_s = 0;  ///< mean of the observed steps
  std::int64_t steps = 0;
  std::vector<CollectiveCall> calls;  ///< in the order in which the rank made them
  /// Exposed time of calls on the rank, on the clock of rank 0.
  std::vector<core::Stretch> exposed;
};

/// Series "collectives", a row for each kind of call of each part of the step ("h.*/gradients"): calls of a
/// rank in a step, means of time = waiting + transfer, bus bandwidth of the transfer. A call waits until the
/// last rank of its group has begun it, a receive until the message is sent. Series "ranks", a row for each,
/// per step: step = own + exposed transfer + exposed waiting, the hidden time of calls, and the share of
/// collectives in which it was the last. `parts` are the names that CollectiveCall::part counts.
std::vector<record::Cell> collective_cells(std::span<const RankTimes> ranks,
                                           std::span<const std::string> parts);

/// Collects the times of all ranks. All ranks call it; rank 0 gets the cells, the others none. `observed`: of
/// this rank.
std::vector<record::Cell> share_collective_times(ranks::Transport& ranks, const program::Mesh& mesh,
                                                 const program::Program& program,
                                                 const ObservedSteps& observed);

}  // namespace rooflm::lab
