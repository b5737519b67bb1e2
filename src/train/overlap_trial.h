// How the collectives of a step run: overlapped with computation or not, and in which way of the device; as
// requested, or whatever is fastest here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "core/named.h"
#include "core/options.h"
#include "engines/engine.h"
#include "ranks/transport.h"

namespace rooflm::train {

using core::name_of;

/// measured: the faster of the two in the first steps.
enum class Overlap : std::uint8_t { measured, on, off };
/// "auto", "on", "off".
constexpr auto names_of(Overlap) {
  return core::named<Overlap>("--overlap",
                              {{Overlap::measured, "auto"}, {Overlap::on, "on"}, {Overlap::off, "off"}});
}

/// The requested way of collectives.
struct CollectiveWishes {
  Overlap overlap = Overlap::measured;
  backends::CollectiveWish way = backends::CollectiveWay::usual;
};
template <core::MaybeConst<CollectiveWishes> T, class Visit>
void visit_options(T& wishes, const Visit& visit) {
  visit("overlap", wishes.overlap);
  visit("collectives", wishes.way);
}

/// Runs the first steps of an engine in all possible orders and ways, in turn, and then keeps the one with
/// the shortest median. Ties go to collectives that are not overlapped, and to the library's default way. The
/// steps are like any others: neither order nor way changes results (Backend::collective_ways). All ranks of
/// the job choose the same. A GPU records the step once for each. Does nothing if there is no choice: one
/// rank, no collectives, a GPU with op-by-op submission.
class OverlapTrial {
 public:
  static constexpr int kWarmup = 2;  ///< rounds that are not compared, because their steps are recorded
  static constexpr int kRounds = 5;  ///< rounds that are: a step of each candidate

  /// The engine and `ranks` (nullptr: this process is alone) outlive it. Throws core::Unavailable where the
  /// device does not have the way that is asked for.
  OverlapTrial(engines::Engine& engine, ranks::Transport* ranks, const CollectiveWishes& wishes);

  /// To be called before and after each step; ranks exchange times only after the last step of the trial.
  void begin_step();
  void end_step(const engines::StepTimes& times);
  /// Whether the trial is over.
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
  /// "collectives overlapped with computation: 10.2 ms per step, one after the other: 11 ms, overlapped with
  /// computation (few-blocks): 10 ms; kept: overlapped with computation (few-blocks)"; "" if nothing was
  /// measured.
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
