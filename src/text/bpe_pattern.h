// A regular expression compiled by PCRE2 for Unicode text.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rooflm::text {

/// `pattern` with `\s` and `\S` written out as Unicode's White_Space (U+0009..D, 20, 85, A0, 1680, 2000..A,
/// 2028, 2029, 202F, 205F, 3000), which they mean in Python's `regex`, in Rust and in Oniguruma; PCRE2 also
/// counts U+180E.
/// `\S` within a bracket expression stays PCRE2's.
std::string spell_out_white_space(std::string_view pattern);

/// A compiled pattern, with machine code where PCRE2's JIT is available. Immutable; shared by threads.
class CompiledPattern {
 public:
  /// Throws core::InputError "WHERE: WHAT '...' is not a regular expression: why, near character N".
  CompiledPattern(std::string_view pattern, const std::string& where,
                  const std::string& what = "the tokenizer's splitting pattern");
  CompiledPattern(const CompiledPattern&) = delete;
  CompiledPattern& operator=(const CompiledPattern&) = delete;
  ~CompiledPattern();

 private:
  friend class PatternMatcher;
  struct Code;
  std::unique_ptr<Code> code_;
};

/// The working memory of matching: one per thread, for any pattern.
class PatternMatcher {
 public:
  PatternMatcher();
  PatternMatcher(const PatternMatcher&) = delete;
  PatternMatcher& operator=(const PatternMatcher&) = delete;
  ~PatternMatcher();

  /// Begin and end of the first match that is not empty in `text` (valid UTF-8) at or after `from`, which
  /// looks no further than the text's end. Throws core::InputError when PCRE2 gives up (its limits on
  /// backtracking), and when the pattern moves the beginning of a match to its end or beyond.
  std::optional<std::pair<std::size_t, std::size_t>> find(const CompiledPattern& pattern,
                                                          std::string_view text, std::size_t from);

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace rooflm::text
