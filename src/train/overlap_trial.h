// How the collectives of a step run: beside its computation or not, and by which means of the device; as
// asked for, or whatever is fastest here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "engines/engine.h"
#include "ranks/transport.h"

namespace rooflm::train {

/// measured: the faster of the two, found out in the first steps.
enum class Overlap : std::uint8_t { measured, on, off };
/// "auto", "on", "off".
std::string_view name_of(Overlap overlap);
/// Throws core::UsageError with a suggestion.
Overlap parse_overlap(std::string_view name);

/// What a run asks for of its collectives.
struct CollectiveWishes {
  Overlap overlap = Overlap::measured;
  backends::CollectiveWish way{};
};

/// Runs the first steps of an engine in all orders and ways that may be, in turn, and then has it keep that
/// whose median was shortest: one after the other unless beside computation is faster, by the library's
/// default unless another way is. The steps are like any others: the order changes no number, and ways are
/// tried that change none (Backend::collective_ways). All ranks of the job use one alike. A GPU records the
/// step once for each. Does nothing where there is nothing to choose: one rank, no collectives, a GPU to
/// which steps are submitted op by op.
class OverlapTrial {
 public:
  static constexpr int kWarmup = 2;  ///< rounds that are not compared: those whose steps record something
  static constexpr int kRounds = 5;  ///< rounds that are: a step of each candidate

  /// The engine and `ranks` (nullptr: this process is alone) outlive it. Throws core::Unavailable where the
  /// device does not have the way that is asked for.
  OverlapTrial(engines::Engine& engine, ranks::Transport* ranks, const CollectiveWishes& wishes);

  /// Before and after each step; the others are told nothing until the last of the trial.
  void begin_step();
  void end_step(const engines::StepTimes& times);
  /// Whether no step is compared any more.
  [[nodiscard]] bool is_done() const { return is_done_; }

  struct Candidate {
    engines::Order order = engines::Order::lanes;
    backends::CollectiveWay way = backends::CollectiveWay::usual;
    double step_s = 0;  ///< median, of the slowest rank; 0 where nothing was measured
  };
  /// The one that is kept.
  [[nodiscard]] const Candidate& result() const { return result_; }
  /// All that were tried, the kept one among them; empty where there was no choice.
  [[nodiscard]] const std::vector<Candidate>& measured() const { return measured_; }
  /// "collectives beside computation: 10.2 ms a step, one after the other: 11 ms, beside computation
  /// (few-blocks): 10 ms; kept: beside computation (few-blocks)"; "" where nothing was measured.
  [[nodiscard]] std::string sentence() const;

 private:
  void use(const Candidate& candidate);
  [[nodiscard]] std::size_t turn() const;
  void decide();

  engines::Engine* engine_;
  ranks::Transport* ranks_;
  bool is_done_ = true;
  int step_ = 0;
  std::vector<Candidate> candidates_, measured_;
  std::vector<std::vector<double>> seconds_;  ///< by candidate
  Candidate result_;
};

}  // namespace rooflm::train
