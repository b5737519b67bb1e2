// The loader: every window once an epoch, the same after a resume, errors where the consumer meets them.
#include "train/data_loader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include "tests/text/data_testing.h"

namespace rooflm::train {
namespace {

using text::expect_error;
using text::TemporaryFolder;
using text::write_shard;
using text::write_text;

using Paths = std::vector<std::filesystem::path>;

class Loader : public ::testing::Test {
 protected:
  /// A shard with the tokens first, first + 1, ...
  std::filesystem::path counting_shard(const std::string& name, std::uint32_t first, std::size_t count) {
    std::vector<std::uint32_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return write_shard(folder_ / name, tokens);
  }
  TemporaryFolder folder_;
};

TEST_F(Loader, VisitsEveryWindowOnceAnEpoch) {
  // 100 tokens hold 24 windows of 4 with a target each, 50 hold 12.
  const Paths shards = {counting_shard("a.bin", 0, 100), counting_shard("b.bin", 1000, 50)};
  for (const bool shuffle : {true, false}) {
    DataLoader loader(shards, {.batch = 3, .seq = 4, .seed = 1, .shuffle = shuffle, .vocab_size = 2000});
    EXPECT_EQ(loader.windows(), 36U);
    EXPECT_EQ(loader.total_tokens(), 150U);
    std::vector<std::vector<std::int32_t>> orders;
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      auto& order = orders.emplace_back();
      for (int i = 0; i < 12; ++i) {
        const Batch& batch = loader.next();
        ASSERT_EQ(batch.tokens.size(), 12U);
        for (std::size_t k = 0; k < 12; ++k) {
          ASSERT_EQ(batch.targets[k], batch.tokens[k] + 1);
          if (k % 4 == 0) order.push_back(batch.tokens[k]);
          ASSERT_EQ(batch.tokens[k], batch.tokens[k - k % 4] + static_cast<std::int32_t>(k % 4));
        }
      }
      EXPECT_EQ(loader.state(), (LoaderState{epoch + 1, 0}));
    }
    const std::set<std::int32_t> windows(orders[0].begin(), orders[0].end());
    EXPECT_EQ(windows.size(), 36U);
    EXPECT_TRUE(windows.contains(0) && windows.contains(92) && windows.contains(1000) &&
                windows.contains(1044));
    EXPECT_EQ(std::is_sorted(orders[0].begin(), orders[0].end()), !shuffle);
    EXPECT_EQ(orders[0] == orders[1], !shuffle);
  }
}

TEST_F(Loader, ResumesBitForBit) {
  const Paths shards = {counting_shard("a.bin", 0, 1000)};
  for (const std::size_t prefetch : {1U, 4U, 9U}) {
    const DataLoaderOptions options{.batch = 7, .seq = 5, .seed = 99, .prefetch = prefetch};
    DataLoader loader(shards, options);
    std::vector<Batch> batches;
    std::vector<LoaderState> states = {loader.state()};
    for (int i = 0; i < 80; ++i) {  // 199 windows an epoch: batches reach across its end
      batches.push_back(loader.next());
      states.push_back(loader.state());
    }
    EXPECT_GE(states.back().epoch, 2U);
    for (const std::size_t at : {0U, 1U, 28U, 29U, 57U, 79U}) {
      DataLoader resumed(shards, options, states[at]);
      loader.seek(states[at]);
      for (std::size_t i = at; i < batches.size(); ++i) {
        ASSERT_EQ(resumed.next().tokens, batches[i].tokens);
        const Batch& again = loader.next();
        ASSERT_EQ(again.tokens, batches[i].tokens);
        ASSERT_EQ(again.targets, batches[i].targets);
        ASSERT_EQ(loader.state(), states[i + 1]);
      }
    }
  }
}

TEST_F(Loader, SeedsDiffer) {
  const Paths shards = {counting_shard("a.bin", 0, 1000)};
  DataLoader one(shards, {.batch = 8, .seq = 5, .seed = 1});
  DataLoader two(shards, {.batch = 8, .seq = 5, .seed = 2});
  EXPECT_NE(one.next().tokens, two.next().tokens);
}

TEST_F(Loader, BatchStaysValidUntilTheNext) {
  const Paths shards = {counting_shard("a.bin", 0, 1000)};
  DataLoader loader(shards, {.batch = 2, .seq = 5, .prefetch = 1});
  for (int i = 0; i < 50; ++i) {
    const Batch& batch = loader.next();
    const Batch copy = batch;
    std::this_thread::sleep_for(std::chrono::microseconds(200));  // the thread fills what it may
    ASSERT_EQ(batch.tokens, copy.tokens);
  }
  EXPECT_GE(loader.wait_s(), 0.0);
  EXPECT_LT(loader.wait_s(), 10.0);
}

TEST_F(Loader, MoreRowsThanWindows) {
  const Paths shards = {counting_shard("a.bin", 0, 11)};
  DataLoader loader(shards, {.batch = 5, .seq = 5, .shuffle = false});
  EXPECT_EQ(loader.windows(), 2U);
  EXPECT_EQ(loader.next().tokens[20], 0);  // windows 0 1 0 1 0
  EXPECT_EQ(loader.state(), (LoaderState{2, 1}));
}

TEST_F(Loader, TokenBeyondTheVocabularyStopsWhereItIs) {
  const Paths shards = {write_shard(folder_ / "a.bin", {1, 2, 3, 4, 5, 6, 70, 8, 9})};
  DataLoader loader(shards, {.batch = 1, .seq = 2, .shuffle = false, .vocab_size = 50});
  EXPECT_EQ(loader.next().tokens, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(loader.next().tokens, (std::vector<std::int32_t>{3, 4}));
  for (int twice = 0; twice < 2; ++twice) {  // token 6 is the target of the window from 4 on
    expect_error<core::InputError>([&] { (void)loader.next(); }, {"a.bin", "token 6", "id 70", "50"});
  }
  loader.seek({0, 0});
  EXPECT_EQ(loader.next().tokens, (std::vector<std::int32_t>{1, 2}));
}

TEST_F(Loader, WhatCannotBe) {
  const Paths shards = {counting_shard("a.bin", 0, 10), counting_shard("b.bin", 0, 8)};
  expect_error<core::InputError>([&] { DataLoader({}, {}); }, {"no token shards"});
  expect_error<core::InputError>([&] { DataLoader(shards, {.batch = 1, .seq = 10}); },
                                 {"a.bin", "10 tokens", "at least 11"});
  EXPECT_EQ(DataLoader(shards, {.batch = 1, .seq = 9}).windows(), 1U);  // the shorter shard is passed over
  for (const std::int64_t bad : {0, -3}) {
    expect_error<core::UsageError>([&] { DataLoader(shards, {.batch = bad, .seq = 4}); },
                                   {"--batch", "positive"});
    expect_error<core::UsageError>([&] { DataLoader(shards, {.batch = 1, .seq = bad}); },
                                   {"--seq", "positive"});
  }
  expect_error<core::UsageError>(
      [&] {
        DataLoader(shards, {.batch = 1, .seq = 4}, {0, 3});
      },
      {"window 3", "3 windows"});
  expect_error<core::UsageError>([&] { DataLoader(shards, {.batch = 1, .seq = 4, .prefetch = 0}); },
                                 {"prefetch"});
  write_text(folder_ / "b.bin", "foreign");
  expect_error<core::InputError>([&] { DataLoader(shards, {.batch = 1, .seq = 4}); }, {"b.bin"});
}

TEST_F(Loader, EvaluationWalksConsecutiveWindows) {
  // (n - 1) / (B T) batches a shard: 24 / 6 and 12 / 6.
  const Paths shards = {counting_shard("a.bin", 0, 25), counting_shard("b.bin", 100, 13),
                        counting_shard("c.bin", 0, 3)};
  const EvalBatches batches(shards, 2, 3, 200);
  ASSERT_EQ(batches.size(), 6U);
  Batch batch;
  const std::int32_t firsts[] = {0, 6, 12, 18, 100, 106};
  for (std::uint64_t i = 0; i < batches.size(); ++i) {
    batches.read(i, batch);
    std::vector<std::int32_t> expected(6);
    std::iota(expected.begin(), expected.end(), firsts[i]);
    EXPECT_EQ(batch.tokens, expected);
    for (auto& token : expected) ++token;
    EXPECT_EQ(batch.targets, expected);
  }
  expect_error<core::InputError>([&] { EvalBatches(shards, 5, 5); }, {"a.bin", "25 tokens", "at least 26"});
  const EvalBatches checked(shards, 2, 3, 105);
  checked.read(3, batch);
  expect_error<core::InputError>([&] { checked.read(4, batch); }, {"b.bin", "token 5", "id 105", "105"});
}

TEST(EvalBatches, BeyondTwoGibibytes) {
  const TemporaryFolder folder;
  const std::int32_t count = 1'500'000'000;  // 3 GB of uint16, of which a few are written
  std::string header(text::kShardHeaderBytes, '\0');
  const std::int32_t words[] = {20240520, 1, count};
  std::memcpy(header.data(), words, sizeof words);
  const auto path = write_text(folder / "large.bin", header);
  const auto bytes = static_cast<std::streamoff>(text::kShardHeaderBytes) + 2LL * count;
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(bytes - 6);
    file.write("\x07\x00\x08\x00\x09\x00", 6);
  }
  const EvalBatches batches({path}, 1, 2);
  EXPECT_EQ(batches.size(), 749'999'999U);
  Batch batch;
  batches.read(batches.size() - 1, batch);
  EXPECT_EQ(batch.tokens, (std::vector<std::int32_t>{0, 7}));  // (n - 1) / 2 windows leave one token over
  EXPECT_EQ(batch.targets, (std::vector<std::int32_t>{7, 8}));
}

}  // namespace
}  // namespace rooflm::train
