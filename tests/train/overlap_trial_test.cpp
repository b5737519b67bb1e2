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

using backends::CollectiveWay;
using engines::Order;

/// Two ranks, of which the second finds one order slow; all keep the same.
Order kept(double lanes_s, double program_s, Overlap wanted = Overlap::measured) {
  std::atomic<int> lanes = 0;
  const tests::SplitStep split = tests::small_step(1);
  const auto thrown = tests::run_over_sockets(2, [&](const std::shared_ptr<ranks::Transport>& transport) {
    tests::RankRunner runner(
        split, transport->rank(),
        backends::comm::make_host_communicator(transport, split.options.sharding.mesh()));
    OverlapTrial trial(runner.engine(), transport.get(), {.overlap = wanted});
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
  EXPECT_EQ(core::parse<Overlap>("auto"), Overlap::measured);
  EXPECT_THROW(core::parse<Overlap>("of"), core::UsageError);
  EXPECT_EQ(core::parse<backends::CollectiveWish>("auto"), std::nullopt);
  EXPECT_EQ(core::parse<backends::CollectiveWish>("copy-engine"), CollectiveWay::copy_engine);
  EXPECT_THROW(core::parse<backends::CollectiveWish>("copy-engines"), core::UsageError);
}

/// A device of three ways, of which each takes so many seconds where collectives run beside.
OverlapTrial::Candidate kept_of(const std::vector<double>& seconds,
                                const CollectiveWishes& wishes = {.way = std::nullopt}) {
  OverlapTrial::Candidate result;
  const tests::SplitStep split = tests::small_step(1);
  const auto thrown = tests::run_over_sockets(2, [&](const std::shared_ptr<ranks::Transport>& transport) {
    tests::RankRunner runner(
        split, transport->rank(),
        backends::comm::make_host_communicator(transport, split.options.sharding.mesh()));
    engines::Engine& engine = runner.engine();
    auto now = CollectiveWay::usual;
    engine.store().backend().offer_collective_ways(
        {CollectiveWay::usual, CollectiveWay::few_blocks, CollectiveWay::copy_engine},
        [&now](CollectiveWay way) { now = way; });
    OverlapTrial trial(engine, transport.get(), wishes);
    int steps = 0;
    for (; !trial.is_done(); ++steps) {
      trial.begin_step();
      runner.step(steps);
      EXPECT_EQ(now, engine.way()) << "of the step that ran";
      EXPECT_FALSE(engine.order() == Order::program && now != CollectiveWay::usual && !wishes.way);
      trial.end_step(
          {.step_s = engine.order() == Order::program ? 5 : seconds.at(static_cast<std::size_t>(now))});
    }
    runner.step(steps);
    EXPECT_EQ(now, trial.result().way);
    EXPECT_EQ(steps % (OverlapTrial::kWarmup + OverlapTrial::kRounds), 0);
    EXPECT_EQ(trial.measured().empty(), steps == 0);
    if (transport->rank() == 0) result = trial.result();
  });
  EXPECT_EQ(thrown, std::vector<std::string>(2));
  return result;
}

TEST(OverlapTrial, KeepsTheFastestWay) {
  EXPECT_EQ(kept_of({3, 2, 4}).way, CollectiveWay::few_blocks);
  EXPECT_EQ(kept_of({3, 2, 1}).way, CollectiveWay::copy_engine);
  EXPECT_EQ(kept_of({3, 3, 3}).way, CollectiveWay::usual) << "others only where they win";
  const OverlapTrial::Candidate in_order = kept_of({6, 7, 8});
  EXPECT_EQ(in_order.order, Order::program);
  EXPECT_EQ(in_order.way, CollectiveWay::usual);
}

TEST(OverlapTrial, TakesTheWayThatIsAskedFor) {
  EXPECT_EQ(kept_of({1, 2, 3}, {.way = CollectiveWay::copy_engine}).way, CollectiveWay::copy_engine);
  EXPECT_EQ(kept_of({3, 2, 1}, {.overlap = Overlap::on, .way = CollectiveWay::usual}).way,
            CollectiveWay::usual);
  EXPECT_EQ(kept_of({3, 2, 1}, {.overlap = Overlap::off}).order, Order::program);
}

}  // namespace
}  // namespace rooflm::train
