// Consistency checks of a run record: the laws that its numbers must keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "record/reader.h"

namespace rooflm::report {

/// A law, how often it could be checked in a run, and its worst violation.
struct LawResult {
  std::int64_t run = 0;  ///< 0: the law is about the record itself
  std::string label{};   ///< of the run
  std::string law{};     ///< "phases add up to the step"
  std::size_t checked = 0;
  std::size_t violated = 0;
  std::size_t not_judged = 0;  ///< how often there was no limit to compare with
  std::string why_not{};
  // Of the worst violation:
  std::string what{};  ///< "step 12, forward"
  double found = 0;
  double bound = 0;  ///< what it should have been, or at most have been, without the tolerance
  std::string unit{};
  double excess = 0;  ///< how far beyond the tolerance, as a share of the bound
};

/// All laws that could be checked, run by run in the order of the record. The laws:
/// - ceilings are positive and lie within their interval; samples are positive;
/// - no matmul and no op passes the instruction peak of its dtype (5 %; ops also 2 us), where there is one;
/// - forward, backward and optimizer add up to the step: in no step more (5 % + 2 us), in the median step no
/// less than
///   5 % + 50 us, which is what submitting and waiting may take;
/// - wall times of the ops add up to the observed step, device times of a phase's ops do not exceed the phase
/// (same
///   tolerances; not of recorded programs, whose kernels run beside each other), and where kernels run on the
///   thread that waits for them (device cpu) wall times add up to the phase and an op's device time is within
///   its wall time;
/// - every op ran once in every observed step, and nothing else did;
/// - matmul FLOPs of the ops add up to 'matmul_flop', roofs of ops to those of phases and the step;
/// - no op, phase or step takes less time (medians) than its roof: 5 % + 2 us; not judged where a ceiling of
///   the roof was only ever measured while other programs had the processors;
/// - no kernel of a foreign program whose work is known takes less time than its roof, nor passes the peak of
///   its dtype (5 %);
/// - memory events: live_bytes is the running sum, never negative, ends as it began; tensors are freed as
/// often and
///   as large as they are allocated; what persists is 'state_bytes', and the peak 'live_bytes_peak' or
///   'plan_peak_bytes' (plans count whole lines of 64 bytes) or 'allocator_peak_bytes';
/// - of a traced step, exclusive, shared and idle time add up to its wall time, and between its first and
/// last kernel to the
///   device's own events (0.5 % + 20 us); kernels lie within their step, add up to the time in which the
///   device was busy, and are as many as the ops say they launch;
/// - of a program that is not ours, steps do not overlap, busy and idle time add up to each, what is longer
///   than ten medians is named, and the share of the device's time in steps is the one that is stated;
/// - the causes of a traced step add up to it, classes of kernels to the time in which the device was busy;
/// no gain of advice
///   is more than the time that it would remove, and all of a recorded program's are within its step;
/// - counted steps are the passes of the counters, and of no other kind; counters belong to ops of the
/// program, not negative,
///   shares at most 1 (5 %); hits in L1 within its sectors; matmuls have all their FLOP counted (1 %,
///   more where tiles are padded; attention leaves some out and is not held); energy of tokens is that of
///   steps;
/// - a training run has a row and a sample for each of its steps, and its loss is that of the last one.
/// Throws core::InputError when the record is damaged.
[[nodiscard]] std::vector<LawResult> verify(const record::Reader& record);

/// Whether no law was violated.
[[nodiscard]] bool all_hold(std::span<const LawResult> results);

}  // namespace rooflm::report
