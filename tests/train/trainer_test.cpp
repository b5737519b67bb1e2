// The training loop: it learns, stops when told to, and when numbers go wrong.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "core/stop_signals.h"
#include "training_testing.h"

namespace rooflm::train {
namespace {

std::vector<nlohmann::json> log_of(const TrainOptions& options) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(testing::read_text(options.out / "log.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(Trainer, LearnsAndLogs) {
  const testing::ScratchDirectory directory;
  const TrainingData data = testing::tiny_data(directory);
  TrainOptions options = testing::tiny_options(directory / "out", 150);
  options.batch = 8;
  options.eval_every = 50;
  options.peak_flop_per_s = 1e12;
  const TrainSummary summary = testing::run_training(testing::tiny_model(), options, data);
  EXPECT_EQ(summary.step, 150);
  EXPECT_EQ(summary.tokens, 150U * 64);
  EXPECT_EQ(summary.signal, 0);
  const auto log = log_of(options);
  ASSERT_EQ(log.size(), 150U);
  EXPECT_NEAR(log[0]["loss"].get<double>(), std::log(57.0), 0.05) << "random weights know nothing";
  EXPECT_LT(summary.val_loss.value(), 3.4);
  EXPECT_EQ(log[149]["val_loss"], summary.val_loss.value());
  EXPECT_TRUE(log[148]["val_loss"].is_null());
  EXPECT_FALSE(log[49]["val_loss"].is_null());
  for (std::size_t i = 0; i < log.size(); ++i) {
    EXPECT_EQ(log[i]["step"], i + 1);
    EXPECT_DOUBLE_EQ(log[i]["lr"].get<double>(), learning_rate(options.schedule, static_cast<long>(i)));
    EXPECT_GT(log[i]["grad_norm"].get<double>(), 0);
    EXPECT_GT(log[i]["mfu"].get<double>(), 0);
    EXPECT_GE(log[i]["loader_wait_s"].get<double>(), 0);
  }
}

TEST(Trainer, MicroBatchesAreOneBatch) {
  const testing::ScratchDirectory directory;
  const TrainingData data = testing::tiny_data(directory);
  TrainOptions whole = testing::tiny_options(directory / "whole", 10);
  whole.batch = 4;
  TrainOptions split = whole;
  split.out = directory / "split";
  split.batch = 1;
  split.step.micro_batches = 4;
  testing::run_training(testing::tiny_model(), whole, data);
  testing::run_training(testing::tiny_model(), split, data);
  const auto a = log_of(whole);
  const auto b = log_of(split);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), 1e-4) << i;
    EXPECT_EQ(a[i]["tokens"], b[i]["tokens"]);
  }
}

TEST(Trainer, SgdWithoutClippingHasNoNorm) {
  const testing::ScratchDirectory directory;
  TrainOptions options = testing::tiny_options(directory / "out", 3);
  options.step.optimizer.kind = passes::OptimizerKind::sgd;
  options.step.optimizer.clip_norm = 0;
  testing::run_training(testing::tiny_model(), options, testing::tiny_data(directory));
  EXPECT_TRUE(log_of(options).at(0)["grad_norm"].is_null());
  EXPECT_EQ(list_checkpoints(options.out).size(), 1U);
}

TEST(Trainer, FineTunesFromAModelDirectory) {
  const testing::ScratchDirectory directory;
  const TrainingData data = testing::tiny_data(directory);
  const TrainOptions first = testing::tiny_options(directory / "first", 60);
  const double reached = testing::run_training(testing::tiny_model(), first, data).val_loss.value();
  TrainOptions second = testing::tiny_options(directory / "second", 1);
  second.schedule.warmup_steps = 0;
  second.schedule.lr = second.schedule.min_lr = 1e-6;
  const TrainSummary summary = testing::run_training(
      testing::tiny_model(), second, data, {.weights = resolve_model_directory(first.out), .checkpoint = {}});
  EXPECT_NEAR(summary.val_loss.value(), reached, 0.01);
}

TEST(Trainer, StopsAtNumbersThatAreNotFinite) {
  for (const double clip : {1.0, 0.0}) {
    const testing::ScratchDirectory directory;
    TrainOptions options = testing::tiny_options(directory / "out", 50);
    options.step.optimizer.kind = passes::OptimizerKind::sgd;
    options.step.optimizer.clip_norm = clip;
    options.schedule = {.kind = ScheduleKind::constant, .lr = 1e-3, .min_lr = 0, .steps = 50};
    options.checkpoint_every = 5;
    const TrainingData data = testing::tiny_data(directory);
    options.schedule.steps = 5;
    testing::run_training(testing::tiny_model(), options, data);
    const auto good = list_checkpoints(options.out).back();
    const auto before = testing::read_text(good / "model.safetensors");
    options.schedule.steps = 50;
    options.schedule.lr = 1e38;
    try {
      testing::run_training(testing::tiny_model(), options, data,
                            {.weights = {}, .checkpoint = good, .may_resume = true});
      FAIL() << "trained on with infinite weights";
    } catch (const core::CheckFailed& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("step "), std::string::npos) << what;
      EXPECT_NE(what.find(good.string()), std::string::npos) << what;
    }
    EXPECT_EQ(list_checkpoints(options.out).back(), good);
    EXPECT_TRUE(testing::read_text(good / "model.safetensors") == before);
  }
}

TEST(Trainer, SavesAndEndsAtSigterm) {
  const testing::ScratchDirectory directory;
  TrainOptions options = testing::tiny_options(directory / "out", 1'000'000);
  const TrainingData data = testing::tiny_data(directory);
  std::thread killer([&] {
    const auto log = options.out / "log.jsonl";
    std::error_code ignored;
    for (int i = 0;
         i < 3000 && (!std::filesystem::exists(log) || std::filesystem::file_size(log, ignored) < 2000); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ::kill(::getpid(), SIGTERM);
  });
  const TrainSummary summary = testing::run_training(testing::tiny_model(), options, data);
  killer.join();
  EXPECT_EQ(summary.signal, SIGTERM);
  EXPECT_GT(summary.step, 2);
  EXPECT_LT(summary.step, 1'000'000);
  EXPECT_EQ(read_checkpoint_state(resolve_model_directory(options.out)).step, summary.step);
  EXPECT_EQ(log_of(options).size(), static_cast<std::size_t>(summary.step));
}

TEST(Trainer, StoppedBeforeItsFirstStepItResumes) {
  const testing::ScratchDirectory directory;
  const TrainingData data = testing::tiny_data(directory);
  const TrainOptions whole = testing::tiny_options(directory / "whole", 4);
  testing::run_training(testing::tiny_model(), whole, data);
  TrainOptions options = whole;
  options.out = directory / "out";
  {
    const core::StopSignals signals;
    ASSERT_EQ(std::raise(SIGTERM), 0);
    const TrainSummary stopped = testing::run_training(testing::tiny_model(), options, data);
    EXPECT_EQ(stopped.signal, SIGTERM);
    EXPECT_EQ(stopped.step, 0);
    EXPECT_EQ(stopped.checkpoint.filename(), "checkpoint-000000");
  }
  testing::run_training(
      testing::tiny_model(), options, data,
      {.weights = {}, .checkpoint = list_checkpoints(options.out).back(), .may_resume = true});
  const auto expected = log_of(whole);
  const auto resumed = log_of(options);
  ASSERT_EQ(resumed.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(resumed[i]["loss"], expected[i]["loss"]) << i;
}

TEST(Trainer, ALogOfAnotherRunIsNotEmptied) {
  const testing::ScratchDirectory directory;
  const TrainingData data = testing::tiny_data(directory);
  TrainOptions options = testing::tiny_options(directory / "one", 4);
  options.log = directory / "shared.log";
  testing::run_training(testing::tiny_model(), options, data);
  const std::string before = testing::read_text(options.log);
  options.out = directory / "two";
  const TrainStart start{.weights = {}, .checkpoint = {}, .may_resume = true};
  EXPECT_THROW(testing::run_training(testing::tiny_model(), options, data, start), core::UsageError);
  EXPECT_EQ(testing::read_text(options.log), before);
  // The log of this run itself, which ended before its first checkpoint.
  options.log = options.out / "log.jsonl";
  std::filesystem::create_directory(options.out);
  testing::write_text(options.log, before);
  testing::run_training(testing::tiny_model(), options, data, start);
  EXPECT_EQ(log_of(options).size(), 4U);
}

TEST(Trainer, RefusesTokensBeyondTheVocabulary) {
  const testing::ScratchDirectory directory;
  TrainingData data = testing::tiny_data(directory);
  model::ModelConfig config = testing::tiny_model();
  config.vocab = 20;
  EXPECT_THROW(testing::run_training(config, testing::tiny_options(directory / "out", 5), data),
               core::InputError);
  data.vocab_size = 21;
  EXPECT_THROW(testing::run_training(config, testing::tiny_options(directory / "other", 5), data),
               core::UsageError);
}

TEST(Trainer, SaysWhatDoesNotFit) {
  const testing::ScratchDirectory directory;
  const TrainingData data = testing::tiny_data(directory);
  TrainOptions options = testing::tiny_options(directory / "out", 5);
  options.memory_limit_bytes = 10'000;
  EXPECT_THROW(testing::run_training(testing::tiny_model(), options, data), core::OutOfMemory);
  options.memory_limit_bytes = 10'000'000;
  EXPECT_EQ(testing::run_training(testing::tiny_model(), options, data).step, 5);
  options.out = directory / "long";
  options.seq = 33;
  EXPECT_THROW(testing::run_training(testing::tiny_model(), options, data), core::UsageError);
}

}  // namespace
}  // namespace rooflm::train
