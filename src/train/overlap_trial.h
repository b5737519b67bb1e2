// Whether the collectives of a step run beside its computation: as asked for, or whatever is faster here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engines/engine.h"
#include "ranks/transport.h"

namespace rooflm::train {

/// measured: the faster of the two, found out in the first steps.
enum class Overlap : std::uint8_t { measured, on, off };
/// "auto", "on", "off".
std::string_view name_of(Overlap overlap);
/// Throws core::UsageError with a suggestion.
Overlap parse_overlap(std::string_view name);

/// Runs the first steps of an engine in both orders in turn, and then has it keep the one whose median was
/// shorter. The steps are like any others, since the order changes no number. All ranks of the job use one
/// alike. A GPU records the step once for each order. Does nothing where there is nothing to choose: one
/// rank, no collectives, a GPU to which steps are submitted op by op.
class OverlapTrial {
 public:
  static constexpr int kWarmup = 4;  ///< steps that are not compared: those that record something
  static constexpr int kPairs = 5;   ///< steps of each order that are

  /// The engine and `ranks` (nullptr: this process is alone) outlive it.
  OverlapTrial(engines::Engine& engine, ranks::Transport* ranks, Overlap wanted);

  /// Before and after each step; the others are told nothing until the last of the trial.
  void begin_step();
  void end_step(const engines::StepTimes& times);
  /// Whether no step is compared any more.
  [[nodiscard]] bool is_done() const { return is_done_; }

  struct Result {
    engines::Order order = engines::Order::lanes;
    double lanes_s = 0, program_s = 0;  ///< medians, of the slowest rank; 0 where nothing was measured
  };
  [[nodiscard]] const Result& result() const { return result_; }
  /// "collectives beside computation: 10.2 ms a step, one after the other 11 ms"; "" where nothing was
  /// measured.
  [[nodiscard]] std::string sentence() const;

 private:
  void decide();

  engines::Engine* engine_;
  ranks::Transport* ranks_;
  bool is_done_ = true;
  int step_ = 0;
  std::vector<double> lanes_s_, program_s_;
  Result result_;
};

}  // namespace rooflm::train
