// Learning merges: the example of the paper, determinism, and a naive trainer as the reference.
#include "text/bpe_trainer.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/text/data_testing.h"

namespace rooflm::text {
namespace {

std::vector<std::string> learned(const Tokenizer& tokenizer, std::size_t special = 1) {
  std::vector<std::string> tokens;
  for (std::uint32_t id = 256; id < tokenizer.vocab_size() - special; ++id)
    tokens.emplace_back(tokenizer.token_bytes(id));
  return tokens;
}

TEST(BpeTrainer, ExampleOfSennrichEtAl) {
  // "low" 5, "lower" 2, "newest" 6, "widest" 3: es (9), then est (9), then lo (7), low (7), ...
  BpeTrainer trainer({.vocab_size = 256 + 1 + 4});
  const std::pair<const char*, int> words[] = {{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}};
  for (const auto& [word, count] : words) {
    for (int i = 0; i < count; ++i) trainer.add(word);
  }
  EXPECT_EQ(learned(trainer.train()), (std::vector<std::string>{"es", "est", "lo", "low"}));
}

/// Merges by counting everything again each time; ties go to the smaller ids.
std::vector<std::string> learn_naively(const std::vector<std::string>& words, std::size_t merges) {
  const auto bytes = Tokenizer::from_merges({}, {});
  std::vector<std::vector<std::uint32_t>> tokens;
  for (const auto& word : words) tokens.push_back(bytes.encode(word));
  std::vector<std::string> spelled;
  for (std::uint32_t id = 0; id < 256; ++id) spelled.emplace_back(bytes.token_bytes(id));
  while (spelled.size() < 256 + merges) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, int> counts;
    for (const auto& word : tokens) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    }
    auto best = counts.begin();
    for (auto at = counts.begin(); at != counts.end(); ++at) {
      if (at->second > best->second) best = at;
    }
    if (best == counts.end() || best->second < 2) break;
    const auto [left, right] = best->first;
    for (auto& word : tokens) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] != left || word[i + 1] != right) continue;
        word[i] = static_cast<std::uint32_t>(spelled.size());
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    spelled.push_back(spelled[left] + spelled[right]);
  }
  return {spelled.begin() + 256, spelled.end()};
}

TEST(BpeTrainer, IncrementalCountsAreTheNaiveOnes) {
  std::mt19937 random(17);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::string> words;
    for (int w = 0; w < 60; ++w) {
      std::string word;
      for (unsigned n = 1 + random() % 12; n > 0; --n) word += "aabc"[random() % 4];
      words.push_back(word);
    }
    BpeTrainer trainer({.vocab_size = 256 + 1 + 40});
    for (const auto& word : words) trainer.add(word);
    ASSERT_EQ(learned(trainer.train()), learn_naively(words, 40));
  }
}

TEST(BpeTrainer, OrderOfTextsDoesNotMatterAndFilesKeepAll) {
  std::mt19937 random(19);
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) texts.push_back(random_text(random, true));
  BpeTrainer forward({.vocab_size = 700});
  BpeTrainer backward({.vocab_size = 700});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    forward.add(texts[i]);
    backward.add(texts[texts.size() - 1 - i]);
  }
  const auto tokenizer = forward.train();
  EXPECT_EQ(learned(tokenizer), learned(backward.train()));
  const TemporaryFolder folder;
  tokenizer.save(folder / "tokenizer.json");
  const auto loaded = Tokenizer::load(folder.path());
  EXPECT_EQ(loaded.vocab_size(), tokenizer.vocab_size());
  EXPECT_EQ(loaded.eot(), tokenizer.vocab_size() - 1);
  for (const auto& text : texts) EXPECT_EQ(loaded.encode(text), tokenizer.encode(text));
  loaded.save(folder / "again.json");
  EXPECT_EQ(read_text(folder / "again.json"), read_text(folder / "tokenizer.json"));
}

TEST(BpeTrainer, StopsWhenNoPairRepeats) {
  BpeTrainer trainer({.vocab_size = 5000});
  trainer.add("abcdef abcdef xyz");
  const auto tokenizer = trainer.train();
  EXPECT_LT(tokenizer.vocab_size(), 300U);
  EXPECT_EQ(BpeTrainer({.vocab_size = 300}).train().vocab_size(), 257U);
}

TEST(BpeTrainer, VocabularyWithoutRoomForBytes) {
  expect_error<core::UsageError>([] { BpeTrainer({.vocab_size = 256}); }, {"256", "at least 257"});
}

}  // namespace
}  // namespace rooflm::text
