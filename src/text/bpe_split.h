// Cutting text into the words within which BPE merges: GPT-2's pattern, or those of a tokenizer.json.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::text {

/// GPT-2's pattern; `\s` is Unicode's White_Space, as in Python's `regex`.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// Llama 3's pattern.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// Qwen2's pattern.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

class CompiledPattern;

/// Patterns applied one after the other: each cuts every piece that those before it left, at the begin and
/// the end of every match. Immutable; shared by threads.
class SplitRules {
 public:
  SplitRules() = default;
  /// Throws core::InputError "...: pattern ..., at character N: why" when a pattern is no regular expression
  /// that PCRE2 accepts; `where` begins that message.
  SplitRules(std::vector<std::string> patterns, const std::string& where);

  [[nodiscard]] const std::vector<std::string>& patterns() const { return patterns_; }
  [[nodiscard]] bool is_gpt2() const { return is_gpt2_; }
  /// Whether every place between an ASCII letter or digit and a blank or line feed is a cut that does not
  /// depend on the text further away: known for the patterns above, assumed of no other.
  [[nodiscard]] bool cuts_before_blanks() const { return cuts_before_blanks_; }

 private:
  friend class WordSplitter;
  std::vector<std::string> patterns_;
  std::vector<std::shared_ptr<const CompiledPattern>> compiled_;
  bool is_gpt2_ = false;
  bool cuts_before_blanks_ = false;
};

/// Walks over a text. Holds scratch memory: one per thread, reusable for any number of texts.
class WordSplitter {
 public:
  explicit WordSplitter(const SplitRules& rules);
  WordSplitter(WordSplitter&&) noexcept;
  WordSplitter& operator=(WordSplitter&&) noexcept;
  WordSplitter(const WordSplitter&) = delete;
  WordSplitter& operator=(const WordSplitter&) = delete;
  ~WordSplitter();

  /// Begins a text, valid UTF-8, that stays where it is until it is walked to its end.
  void begin(std::string_view text);
  /// Writes the ends of the next words (offsets in the text) to `ends`; returns how many, 0 at the text's
  /// end.
  std::size_t next(std::span<std::size_t> ends);

 private:
  struct Scratch;
  std::size_t next_gpt2(std::span<std::size_t> ends);
  std::size_t next_by_rules(std::span<std::size_t> ends);
  void split_piece(std::size_t first, std::size_t last, std::size_t rule);

  std::string_view text_;
  std::size_t at_ = 0;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace rooflm::text
