// Collectives beside computation on processors: that they are, and that what fails there is told.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "engines/side_thread.h"
#include "program/ops.h"
#include "tests/engines/sharded_runner.h"

namespace rooflm::tests {
namespace {

using backends::comm::Communicator;
using program::Group;

constexpr std::chrono::seconds kLong{60};

/// Which op of the lane compute has begun last.
class Gate {
 public:
  void open(std::size_t op) {
    const std::lock_guard lock(mutex_);
    op_ = op;
    changed_.notify_all();
  }
  /// False when that op does not begin for long.
  bool wait_beyond(std::size_t op) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return op_ > op; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t op_ = 0;
};

/// Opens the gate op by op, and keeps when ops ran beside.
class GateOpener final : public engines::Observer {
 public:
  explicit GateOpener(Gate& gate) : gate_(&gate) {}
  [[nodiscard]] bool sees_lanes() const override { return true; }
  void on_op_begin(const program::Program&, std::size_t index) override { gate_->open(index); }
  void on_op_end(const program::Program&, std::size_t) override {}
  void on_beside(const program::Program&, std::span<const engines::OpBeside> ops) override {
    beside.assign(ops.begin(), ops.end());
  }
  std::vector<engines::OpBeside> beside;

 private:
  Gate* gate_;
};

/// The sums of gradients of a layer end only when a later op of the backward pass has begun.
class GatedCommunicator final : public Communicator {
 public:
  GatedCommunicator(std::shared_ptr<Communicator> inner, Gate& gate)
      : inner_(std::move(inner)), gate_(&gate) {}
  void begin(std::string_view op) override { op_ = op; }
  void all_reduce(Group group, Transfers whole) override {
    inner_->all_reduce(group, whole);
    if (op_.ends_with("h.1/gradients") && !gate_->wait_beyond(closes_at_)) throw std::runtime_error(op_);
  }
  void all_gather(Group group, Transfers whole) override { inner_->all_gather(group, whole); }
  void reduce_scatter(Group group, Transfers whole, bool accumulate) override {
    inner_->reduce_scatter(group, whole, accumulate);
  }
  void pass_on(Group group, Transfers whole) override { inner_->pass_on(group, whole); }
  void send(const backends::comm::Message& message, const void* from, std::int64_t bytes) override {
    inner_->send(message, from, bytes);
  }
  void receive(const backends::comm::Message& message, void* to, std::int64_t bytes) override {
    inner_->receive(message, to, bytes);
  }
  void close_at(std::size_t op) { closes_at_ = op; }

 private:
  std::shared_ptr<Communicator> inner_;
  Gate* gate_;
  std::string op_;
  std::size_t closes_at_ = 0;
};

std::size_t op_in(const program::Program& program, const program::OpDef& def, const std::string& scope) {
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].is(def) && program.ops[i].scope == scope) return i;
  }
  throw std::logic_error("no such op");
}

/// Would hang, and then fail, if a layer's sums came before the backward pass of the layer below.
TEST(Overlap, GradientsAreSummedWhileTheBackwardPassGoesOn) {
  const SplitStep split = small_step(0);
  backends::comm::run_ranks(split.options.sharding.mesh(), [&](int rank, const auto& communicator) {
    Gate gate;
    const auto gated = std::make_shared<GatedCommunicator>(communicator, gate);
    RankRunner runner(split, rank, gated);
    const program::Program& program = runner.engine().program();
    const std::size_t sum = op_in(program, program::ops::kAllReduce, "h.1/gradients");
    gated->close_at(sum);
    GateOpener opener(gate);
    for (int step = 0; step < 2; ++step) {
      gate.open(0);
      const engines::StepTimes times = runner.step(step, &opener);
      EXPECT_GT(times.exposed_s, 0);
      EXPECT_LT(times.exposed_s, times.step_s);
      ASSERT_EQ(opener.beside.size(),
                static_cast<std::size_t>(std::ranges::count_if(
                    program.ops, [](const auto& op) { return program::is_collective(op); })));
      for (std::size_t i = 0; i < opener.beside.size(); ++i) {
        EXPECT_LE(opener.beside[i].begin_ns, opener.beside[i].end_ns);
        const std::int64_t before_ns = i == 0 ? 0 : opener.beside[i - 1].end_ns;
        EXPECT_LE(before_ns, opener.beside[i].begin_ns) << "one after the other";
      }
    }
  });
}

TEST(Overlap, WhatFailsBesideIsThrownWhereItIsWaitedFor) {
  std::vector<std::size_t> ran;
  engines::SideThread side(
      [&](std::size_t op) {
        if (op == 5) throw core::InputError("five");
        ran.push_back(op);
      },
      8);
  side.begin();
  side.submit(2);
  side.submit(4);
  side.wait_for(3);  // what was submitted before it
  side.wait();
  EXPECT_EQ(ran, (std::vector<std::size_t>{2, 4}));
  EXPECT_EQ(side.ops().size(), 2U);
  side.begin();
  side.submit(1);
  side.submit(5);
  side.submit(7);
  EXPECT_THROW(side.wait_for(5), core::InputError);
  EXPECT_THROW(side.wait(), core::InputError);
  EXPECT_EQ(ran, (std::vector<std::size_t>{2, 4, 1})) << "nothing runs after a failure";
}

}  // namespace
}  // namespace rooflm::tests
