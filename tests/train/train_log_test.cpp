// The log of a training run.
#include "train/train_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "training_testing.h"

namespace rooflm::train {
namespace {

std::vector<nlohmann::json> lines_of(const std::filesystem::path& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(testing::read_text(path));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(TrainLog, WritesEachLineAtOnce) {
  const testing::ScratchDirectory directory;
  TrainLog log(directory / "log.jsonl");
  log.append({.step = 1, .loss = 2.5, .lr = 0.1, .tokens = 16, .tokens_per_s = 100});
  log.append({.step = 2,
              .loss = std::numeric_limits<double>::quiet_NaN(),
              .grad_norm = 3.0,
              .mfu = 0.5,
              .peak_flop_per_s = 1e12,
              .val_loss = 4.0});
  const auto lines = lines_of(directory / "log.jsonl");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["step"], 1);
  EXPECT_EQ(lines[0]["loss"], 2.5);
  EXPECT_EQ(lines[0]["tokens"], 16);
  for (const char* key : {"grad_norm", "mfu", "val_loss"}) EXPECT_TRUE(lines[0][key].is_null()) << key;
  EXPECT_TRUE(lines[1]["loss"].is_null());
  EXPECT_EQ(lines[1]["mfu"], 0.5);
  EXPECT_EQ(lines[1]["val_loss"], 4.0);
}

TEST(TrainLog, DropsWhatFollowedTheCheckpoint) {
  const testing::ScratchDirectory directory;
  const auto path = directory / "log.jsonl";
  {
    TrainLog log(path);
    for (int step = 1; step <= 5; ++step) log.append({.step = step, .loss = 1.0 * step});
  }
  testing::write_text(path, testing::read_text(path) + "{\"step\": 6, \"lo");
  TrainLog log(path);
  log.keep_until(3);
  log.append({.step = 4, .loss = 44});
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[2]["step"], 3);
  EXPECT_EQ(lines[3]["loss"], 44);
}

TEST(TrainLog, RefusesWhatIsNoLog) {
  const testing::ScratchDirectory directory;
  testing::write_text(directory / "notes.txt", "my thesis\nchapter 1\n");
  try {
    TrainLog log(directory / "notes.txt");
    log.keep_until(0);
    FAIL() << "a foreign file was taken for a log";
  } catch (const core::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("notes.txt: line 1"), std::string::npos) << error.what();
  }
  EXPECT_EQ(testing::read_text(directory / "notes.txt"), "my thesis\nchapter 1\n");
  EXPECT_THROW(TrainLog(directory / "missing/log.jsonl"), core::InputError);
  EXPECT_THROW(TrainLog(directory.path()), core::InputError);
}

TEST(TrainLog, IsOfOneRunAtATime) {
  const testing::ScratchDirectory directory;
  const auto path = directory / "log.jsonl";
  TrainLog log(path);
  log.append({.step = 1});
  EXPECT_THROW(TrainLog{path}, core::UsageError);
  EXPECT_EQ(lines_of(path).size(), 1U);
}

TEST(TrainLog, MayBeADeviceThatSeveralRunsWriteTo) {
  TrainLog one("/dev/null");
  TrainLog other("/dev/null");
  for (TrainLog* log : {&one, &other}) {
    log->keep_until(0);
    log->append({.step = 1});
  }
}

TEST(TrainLog, APipeThatNobodyReadsIsNotWaitedFor) {
  const testing::ScratchDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(TrainLog(directory / "pipe"), core::InputError);
}

}  // namespace
}  // namespace rooflm::train
