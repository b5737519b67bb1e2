// Which of two orders of a split step a run keeps.
#include "train/overlap_trial.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "backends/comm/host_communicator.h"
#include "core/error.h"
#include "tests/engines/sharded_runner.h"
#include "tests/ranks/socket_ranks.h"

namespace rooflm::train {
namespace {

using engines::Order;

/// Two ranks, of which the second finds one order slow; all keep the same.
Order kept(double lanes_s, double program_s, Overlap wanted = Overlap::measured) {
  std::atomic<int> lanes = 0;
  const tests::SplitStep split = tests::small_step(1);
  const auto thrown = tests::run_over_sockets(2, [&](const std::shared_ptr<ranks::Transport>& transport) {
    tests::RankRunner runner(
        split, transport->rank(),
        backends::comm::make_host_communicator(transport, split.options.sharding.mesh()));
    OverlapTrial trial(runner.engine(), transport.get(), wanted);
    int beside = 0;
    int steps = 0;
    for (; !trial.is_done(); ++steps) {
      trial.begin_step();
      const bool is_beside = runner.engine().order() == Order::lanes;
      beside += is_beside ? 1 : 0;
      const double slow = transport->rank() == 1 ? 1 : 0.1;
      runner.step(steps);
      trial.end_step({.step_s = slow * (is_beside ? lanes_s : program_s)});
    }
    EXPECT_EQ(beside, steps / 2);
    EXPECT_EQ(trial.sentence().empty(), wanted != Overlap::measured);
    EXPECT_EQ(trial.result().order, runner.engine().order());
    if (runner.engine().order() == Order::lanes) ++lanes;
    runner.step(steps);
  });
  EXPECT_EQ(thrown, std::vector<std::string>(2));
  EXPECT_NE(lanes, 1) << "ranks decide alike";
  return lanes == 2 ? Order::lanes : Order::program;
}

TEST(OverlapTrial, KeepsTheFasterOrder) {
  EXPECT_EQ(kept(1, 1.5), Order::lanes);
  EXPECT_EQ(kept(1.5, 1), Order::program);
  EXPECT_EQ(kept(1, 1), Order::program) << "kept only where it wins";
}

TEST(OverlapTrial, DoesWhatItIsTold) {
  EXPECT_EQ(kept(1, 2, Overlap::off), Order::program);
  EXPECT_EQ(kept(2, 1, Overlap::on), Order::lanes);
  EXPECT_EQ(parse_overlap("auto"), Overlap::measured);
  EXPECT_THROW(parse_overlap("of"), core::UsageError);
}

}  // namespace
}  // namespace rooflm::train
