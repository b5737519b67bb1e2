// A replay that begins when all of it was submitted: the order of things, and what its times are of.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engines/engine.h"
#include "program/ops.h"
#include "tests/compile/passes/recipes.h"

namespace rooflm {
namespace {

using Log = std::vector<std::string>;
constexpr std::chrono::milliseconds kSubmission{5};

class LoggedHold final : public backends::Hold {
 public:
  LoggedHold(Log& log, bool lasts) : log_(&log), lasts_(lasts) {}
  bool release() override {
    log_->push_back("release");
    return lasts_;
  }

 private:
  Log* log_;
  bool lasts_;
};

class LoggedRecording final : public backends::Recording {
 public:
  explicit LoggedRecording(Log& log) : log_(&log) {}
  void replay(const std::function<void()>& may_begin) override {
    log_->push_back("replay");
    std::this_thread::sleep_for(kSubmission);
    may_begin();
    log_->push_back("rest");
  }

 private:
  Log* log_;
};

/// A device's clock: each first mark of a step comes when its turn does, all others at once.
class LateClock final : public backends::Stopwatch {
 public:
  LateClock(std::size_t marks, double turn_s) : marks_(marks), turn_s_(turn_s) {}
  void mark(std::size_t index) override {
    if (index == 0) std::this_thread::sleep_for(std::chrono::duration<double>(turn_s_));
    marks_.at(index) = std::chrono::steady_clock::now();
  }
  [[nodiscard]] bool is_on_device() const override { return true; }
  [[nodiscard]] double elapsed_s(std::size_t from, std::size_t to) const override {
    return std::chrono::duration<double>(marks_.at(to) - marks_.at(from)).count();
  }

 private:
  std::vector<std::chrono::steady_clock::time_point> marks_;
  double turn_s_;
};

/// Records steps, can be held, and runs nothing.
class HeldBackend final : public backends::Backend {
 public:
  HeldBackend() : Backend(table()) {}
  [[nodiscard]] std::string device() const override { return "held"; }
  [[nodiscard]] void* allocate(std::size_t bytes) override {
    return bytes == 0 ? nullptr : std::calloc(bytes, 1);
  }
  void release(void* data) noexcept override { std::free(data); }
  void copy_in(void*, const void*, std::size_t) override {}
  void copy_out(void*, const void*, std::size_t) override {}
  void zero(void*, std::size_t) override {}
  void synchronize() override { log.emplace_back("wait"); }
  [[nodiscard]] double free_bytes() const override { return 1e18; }
  [[nodiscard]] std::unique_ptr<backends::Recording> record(const SubmitStep& submit,
                                                            backends::Overlap) override {
    submit([](std::size_t) {});
    return std::make_unique<LoggedRecording>(log);
  }
  [[nodiscard]] std::unique_ptr<backends::Stopwatch> make_stopwatch(std::size_t marks) const override {
    if (turn_s == 0) return Backend::make_stopwatch(marks);
    return std::make_unique<LateClock>(marks, turn_s);
  }
  [[nodiscard]] std::unique_ptr<backends::Hold> hold() override {
    log.emplace_back("hold");
    return can_hold ? std::make_unique<LoggedHold>(log, lasts) : nullptr;
  }
  Log log;
  bool can_hold = true, lasts = true;
  double turn_s = 0;  ///< how long a device of its own clock waits for its turn; 0: the host's clock

 private:
  static std::vector<backends::KernelRow> table() {
    std::vector<backends::KernelRow> rows;
    const auto make = [](const program::Program&, const program::Op&) {
      return backends::Kernel([](const backends::KernelArgs&) {});
    };
    for (const program::OpDef* op : program::ops::all()) rows.push_back({op, make});
    return rows;
  }
};

class HeldStart : public testing::Test {
 protected:
  HeldStart() {
    engine.run();  // op by op
    engine.run();  // recorded, replayed
  }
  engines::StepTimes run(engines::Start start) {
    backend.log.clear();
    return engine.run(nullptr, start);
  }
  HeldBackend backend;
  engines::TensorStore store{backend};
  engines::Engine engine{tests::small_step(model::Arch::llama, {}), compile::EngineKind::fused, store};
};

constexpr double kSubmissionSeconds = std::chrono::duration<double>(kSubmission).count();

TEST_F(HeldStart, TheDeviceBeginsWhenTheStepIsSubmittedAndTimesCountFromThere) {
  const engines::StepTimes times = run(engines::Start::when_submitted);
  EXPECT_EQ(backend.log, (Log{"hold", "replay", "release", "rest", "wait"}));
  EXPECT_TRUE(times.was_held);
  EXPECT_GE(times.submit_s, kSubmissionSeconds);
  const engines::StepTimes at_once = run(engines::Start::at_once);
  EXPECT_EQ(backend.log, (Log{"replay", "rest", "wait"}));
  EXPECT_FALSE(at_once.was_held);
  EXPECT_GE(at_once.step_s, at_once.submit_s);
}

TEST_F(HeldStart, AHoldThatGaveWayCountsAsNone) {
  backend.lasts = false;
  const engines::StepTimes times = run(engines::Start::when_submitted);
  EXPECT_FALSE(times.was_held);
  EXPECT_GE(times.step_s, times.submit_s);
  backend.can_hold = false;
  EXPECT_FALSE(run(engines::Start::when_submitted).was_held);
  EXPECT_EQ(backend.log, (Log{"hold", "replay", "rest", "wait"}));
}

/// Wants the times of ops, which replays give.
class Watcher final : public engines::Observer {
 public:
  [[nodiscard]] bool wants_marks() const override { return true; }
  void on_op_begin(const program::Program&, std::size_t) override {}
  void on_op_end(const program::Program&, std::size_t) override {}
  void on_replayed(const program::Program&, std::span<const engines::ReplayedOp> ops, std::int64_t) override {
    replayed = ops.size();
  }
  std::size_t replayed = 0;
};

TEST_F(HeldStart, AReplayWithMarksOfOpsBeginsWhenItIsSubmitted) {
  Watcher watcher;
  backend.log.clear();
  const engines::StepTimes times = engine.run(&watcher);
  EXPECT_EQ(backend.log, (Log{"hold", "replay", "release", "rest", "wait"}))
      << "else its first marks would be late";
  EXPECT_TRUE(times.was_held);
  EXPECT_GT(watcher.replayed, 0U);
}

TEST(DeviceWait, AStepThatIsSubmittedOpByOpKnowsHowLongTheDeviceDidNotBegin) {
  constexpr double kTurn = 20e-3;
  HeldBackend backend;
  backend.turn_s = kTurn;
  engines::TensorStore store{backend};
  engines::Engine eager(tests::small_step(model::Arch::llama, {}), compile::EngineKind::eager, store);
  // A thread that loses its processor between two clocks is wrong by that: once of a few times it keeps it.
  engines::StepTimes late;
  const auto sum = [&] { return late.wait_s + late.forward_s + late.backward_s + late.optimizer_s; };
  for (int attempt = 0; attempt < 8; ++attempt) {
    late = eager.run();
    if (sum() <= late.step_s) break;
  }
  EXPECT_GE(late.wait_s, kTurn);
  EXPECT_LE(sum(), late.step_s);
  engines::Engine fused(tests::small_step(model::Arch::llama, {}), compile::EngineKind::fused, store);
  fused.run();
  EXPECT_EQ(fused.run().wait_s, 0) << "a replay takes no mark before it";
  backend.turn_s = 0;
  engines::Engine plain(tests::small_step(model::Arch::llama, {}), compile::EngineKind::eager, store);
  EXPECT_EQ(plain.run().wait_s, 0) << "the host takes the marks";
}

}  // namespace
}  // namespace rooflm
