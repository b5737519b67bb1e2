// Stacks of this very process: what is seen of threads that run, and that the program does not notice.
#include "inject/stack_sampler.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "foreign/recorded.h"
#include "inject/session.h"

namespace rooflm::inject {

/// Takes `ms` of the calling thread's processor time.
__attribute__((noinline)) double burn_for_test(int ms) {
  const auto used_ms = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
  };
  volatile double sum = 1;
  for (const auto end = used_ms() + ms; used_ms() < end;) {
    for (int i = 0; i < 1000; ++i) sum = sum * 1.0000001 + 0.5;
  }
  return sum;
}

namespace {

constexpr double kHertz = 1000;
std::atomic<int> own_signals{0};

void count_signal(int /*signal*/) { ++own_signals; }

class Stacks : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("rooflm-stacks-" + std::to_string(::getpid()));
    std::string why;
    writer_ = StreamWriter::create(path_, ~std::uint64_t{0}, why);
    ASSERT_NE(writer_, nullptr) << why;
  }
  void TearDown() override {
    sampler_.reset();
    ::signal(SIGURG, SIG_DFL);
    writer_.reset();
    std::filesystem::remove(path_);
  }

  /// Skips the test where a system has no timers of a thread's processor time.
  void start(bool native = true, double budget = 1) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer delivers signals later, elsewhere";
#endif
    std::string why;
    sampler_ =
        StackSampler::start(*writer_, {.hertz = kHertz, .native = native, .budget = budget}, is_on_, why);
    if (sampler_ == nullptr && why.find("timer_create") != std::string::npos) GTEST_SKIP() << why;
    ASSERT_NE(sampler_, nullptr) << why;
  }

  /// Samples by the text of their stacks.
  std::map<std::string, int> samples() {
    sampler_->stop();
    writer_->end();
    foreign::RecordedProcess process = foreign::read_stream(path_);
    std::map<std::string, int> counts;
    for (const record::Activity& activity : process.run.activities()) {
      const record::ActivityName& name = process.run.name_of(activity);
      if (name.kind == "sample") ++counts[name.text];
    }
    problem_ = process.problem;
    return counts;
  }

  int samples_with(const std::string& frame) {
    int count = 0;
    for (const auto& [text, times] : samples()) count += text.find(frame) == std::string::npos ? 0 : times;
    return count;
  }

  std::atomic<bool> is_on_{true};
  std::filesystem::path path_;
  std::unique_ptr<StreamWriter> writer_;
  std::unique_ptr<StackSampler> sampler_;
  std::string problem_;
};

TEST_F(Stacks, ThreadsThatRunAreSeenInTheirFunctions) {
  start();
  if (IsSkipped()) return;
  std::thread other([] { burn_for_test(60); });
  burn_for_test(60);
  other.join();
  // A tick of the system may be 10 ms.
  EXPECT_GE(samples_with("burn_for_test ("), 6);
}

TEST_F(Stacks, NothingIsKeptWhileNothingIsRecorded) {
  is_on_ = false;
  start();
  if (IsSkipped()) return;
  burn_for_test(40);
  EXPECT_TRUE(samples().empty());
}

TEST_F(Stacks, WithoutNativeFramesAndPythonThereIsNothingToSee) {
  start(false);
  if (IsSkipped()) return;
  burn_for_test(40);
  EXPECT_TRUE(samples().empty());
}

TEST_F(Stacks, CallsThatWaitAreNotInterrupted) {
  start();
  if (IsSkipped()) return;
  std::atomic<bool> is_done{false};
  std::thread busy([&] {
    while (!is_done) burn_for_test(1);
  });
  for (int i = 0; i < 4; ++i) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 20'000'000};
    EXPECT_EQ(::nanosleep(&pause, nullptr), 0) << errno;
  }
  is_done = true;
  busy.join();
}

TEST_F(Stacks, AThreadGetsAStackForHandlers) {
  start();
  if (IsSkipped()) return;
  stack_t before{};
  stack_t after{};
  std::thread other([&] {
    ::sigaltstack(nullptr, &before);
    burn_for_test(60);
    ::sigaltstack(nullptr, &after);
  });
  other.join();
  if (before.ss_flags != SS_DISABLE) GTEST_SKIP() << "threads have one of somebody else's";
  EXPECT_EQ(after.ss_flags, 0);
  EXPECT_GE(after.ss_size, 16384U);
}

TEST_F(Stacks, AProgramThatHandlesTheSignalIsLeftAlone) {
  ::signal(SIGURG, count_signal);
  std::string why;
  EXPECT_EQ(StackSampler::start(*writer_, {.hertz = kHertz}, is_on_, why), nullptr);
  EXPECT_NE(why.find("SIGURG"), std::string::npos);
  EXPECT_EQ(::raise(SIGURG), 0);
  EXPECT_EQ(own_signals.exchange(0), 1);
}

TEST_F(Stacks, AProgramMayTakeTheSignalLater) {
  start();
  if (IsSkipped()) return;
  burn_for_test(20);
  ::signal(SIGURG, count_signal);
  // The sampler looks at each of its ticks, when it is its turn.
  for (int tries = 0; tries < 50; ++tries) {
    own_signals = 0;
    burn_for_test(20);
    if (own_signals == 0) break;
  }
  EXPECT_EQ(own_signals, 0);
  samples();
  EXPECT_NE(problem_.find("SIGURG"), std::string::npos) << problem_;
}

TEST_F(Stacks, MemoryThatIsNotThereIsNoFault) {
  std::uint64_t word = 42;
  std::uint64_t copy = 0;
  if (!peek(reinterpret_cast<std::uintptr_t>(&word), &copy, sizeof(copy)))
    GTEST_SKIP() << "this system forbids looking";
  EXPECT_EQ(copy, word);
  EXPECT_FALSE(peek(8, &copy, sizeof(copy)));
  // A layout that is nonsense leads nowhere, or nowhere harmful.
  start(false);
  if (IsSkipped()) return;
  EXPECT_FALSE(
      sampler_->set_python({.frame = 8, .inner_frame = -1, .code = 4096, .previous = 8, .instruction = 16}));
  EXPECT_FALSE(
      sampler_->set_python({.frame = -1, .inner_frame = -1, .code = 0, .previous = 8, .instruction = 16}));
}

TEST_F(Stacks, WhatIsTooDearIsSampledMoreSeldomAndCountsForMore) {
  start(true, 1e-6);  // of a millisecond: nothing is that cheap
  if (IsSkipped()) return;
  burn_for_test(400);
  sampler_->stop();
  writer_->end();
  foreign::RecordedProcess process = foreign::read_stream(path_);
  std::size_t samples = 0;
  std::size_t heavy = 0;
  for (const record::Activity& activity : process.run.activities()) {
    if (process.run.name_of(activity).kind != "sample") continue;
    ++samples;
    constexpr std::string_view kKey = "\"periods\":";
    const std::size_t at = activity.extra.find(kKey);
    if (at == std::string::npos) continue;
    constexpr int kMany = 32;  // a tick of the system is at most 10 of these periods
    heavy += std::stoi(activity.extra.substr(at + kKey.size())) >= kMany ? 1 : 0;
  }
  EXPECT_GE(heavy, 1U);
  EXPECT_LT(samples, 200U);  // of 400
}

TEST_F(Stacks, SamplesAreFewerWhereTheyAreToCostLessAndCountForMore) {
  start();
  if (IsSkipped()) return;
  sampler_->slow_down(true);
  burn_for_test(300);
  std::thread waits([] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); });
  waits.join();
  sampler_->stop();
  writer_->end();
  foreign::RecordedProcess process = foreign::read_stream(path_);
  int waited = 0;
  for (const record::Activity& activity : process.run.activities()) {
    if (process.run.name_of(activity).kind != "sample") continue;
    const bool is_waiting = activity.extra.find("waiting") != std::string::npos;
    constexpr std::string_view kKey = "\"periods\":";
    const std::size_t at = activity.extra.find(kKey);
    const int periods = at == std::string::npos ? 1 : std::stoi(activity.extra.substr(at + kKey.size()));
    if (is_waiting) waited += periods;
    // The first signals may come before the sampler's thread has slowed down.
    if (!is_waiting && activity.start_ns > 100'000'000) {
      EXPECT_GE(periods, 4);
    }
  }
  EXPECT_GE(waited, 300);  // of 600: this thread, and the one that it waits for
  EXPECT_LE(waited, 1200);
}

TEST(ThreadTimers, WaitAsLongAsTheBudgetAsks) {
  constexpr double kPeriod = 0.01;
  constexpr double kBudget = 0.01;  // 100 us of each period
  EXPECT_EQ(periods_between(20e-6, kPeriod, kBudget, 1), 1U);
  EXPECT_EQ(periods_between(99e-6, kPeriod, kBudget, 1), 1U);
  EXPECT_EQ(periods_between(101e-6, kPeriod, kBudget, 1), 2U);
  EXPECT_EQ(periods_between(900e-6, kPeriod, kBudget, 1), 16U);
  EXPECT_EQ(periods_between(1, kPeriod, kBudget, 1), 64U);
  // More often only where it leaves a third of the budget.
  EXPECT_EQ(periods_between(90e-6, kPeriod, kBudget, 4), 2U);
  EXPECT_EQ(periods_between(60e-6, kPeriod, kBudget, 4), 1U);
}

TEST(ThreadTimers, OneDearSampleDoesNotDecide) {
  ThreadPace pace;
  EXPECT_EQ(pace.add_cost(40'000), 10'000U);      // the first one
  EXPECT_EQ(pace.add_cost(90'000'000), 40'000U);  // somebody else had the processor
  EXPECT_LT(pace.cost_ns, 14'000U);
  for (int i = 0; i < 60; ++i) pace.add_cost(100'000);
  EXPECT_GT(pace.cost_ns, 95'000U);
}

TEST(StackWishes, AreRateAndKind) {
  EXPECT_EQ(StackSampler::Wishes::from_text("").hertz, 0);
  EXPECT_EQ(StackSampler::Wishes::from_text("nan").hertz, 0);
  EXPECT_EQ(StackSampler::Wishes::from_text("1e9").hertz, 0);
  EXPECT_TRUE(StackSampler::Wishes::from_text("100").native);
  EXPECT_TRUE(StackSampler::Wishes::from_text("100,native").native);
  EXPECT_FALSE(StackSampler::Wishes::from_text("99.5,python").native);
  EXPECT_EQ(StackSampler::Wishes::from_text("100").budget, 0.01);
  EXPECT_EQ(StackSampler::Wishes::from_text("100,0.5").budget, 0.5);
  EXPECT_EQ(StackSampler::Wishes::from_text("100,native,0.25").budget, 0.25);
  EXPECT_EQ(StackSampler::Wishes::from_text("100,python,0.125").budget, 0.125);
  EXPECT_EQ(StackSampler::Wishes::from_text("100,python,7").budget, 0.01);
}

}  // namespace
}  // namespace rooflm::inject
