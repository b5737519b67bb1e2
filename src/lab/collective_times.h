// How long the collectives of a split step took on all ranks, on one clock: waiting for the last rank apart
// from the transfer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/groups.h"
#include "ranks/transport.h"
#include "record/rows.h"
#include "trace/op_recorder.h"

namespace rooflm::lab {

/// One collective of one rank in one observed step.
struct CollectiveCall {
  std::int64_t step = 0;
  std::int32_t rank = 0, ranks = 1;       ///< of how many in the group
  std::int32_t group = 0;                 ///< program::Group
  std::int32_t team = 0;                  ///< which of the groups of that kind: its first rank
  std::int32_t op = 0;                    ///< as CommOp; those that all ranks of a group call
  std::int32_t part = 0;                  ///< of the program, see parts_of
  std::int64_t bytes = 0;                 ///< program::payload_bytes
  std::int64_t start_ns = 0, end_ns = 0;  ///< on the clock of the first rank
};

/// What one rank saw of the observed steps.
struct RankTimes {
  double step_s = 0;      ///< mean of the observed steps
  double messages_s = 0;  ///< of one step: in send and receive, which pipelines wait in
  std::int64_t steps = 0;
  std::vector<CollectiveCall> calls;  ///< in the order in which the rank made them
};

/// Series "collectives", a row for each kind of call of each part of the step ("h.*/gradients"): calls of a
/// rank in a step, means of time = waiting + transfer, bus bandwidth of the transfer. A call waits until the
/// last rank of its group has begun it. Series "ranks", a row for each: what it spent in collectives and
/// messages, and how often it was the last. `parts` are the names that CollectiveCall::part counts.
std::vector<record::Cell> collective_cells(std::span<const RankTimes> ranks,
                                           std::span<const std::string> parts);

/// Brings the times of all ranks together. All ranks call it; the cells are there on the first, none on the
/// others. `events` are those of `recorder`.
std::vector<record::Cell> share_collective_times(ranks::Transport& ranks, const program::Mesh& mesh,
                                                 const program::Program& program,
                                                 const trace::OpRecorder& recorder, double step_s);

}  // namespace rooflm::lab
