// GPT-2's pattern by hand where a word is ASCII, PCRE2 for the rest and for every other pattern.
#include "text/bpe_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "text/bpe_pattern.h"
#include "text/bpe_utf8.h"

namespace rooflm::text {
namespace {

enum Class : unsigned char { kOther, kLetter, kDigit, kSpace, kBeyondAscii };

constexpr std::array<Class, 256> make_classes() {
  std::array<Class, 256> classes{};
  for (unsigned c = 0; c < classes.size(); ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool digit = c >= '0' && c <= '9';
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    classes[c] = c >= 0x80 ? kBeyondAscii : letter ? kLetter : digit ? kDigit : space ? kSpace : kOther;
  }
  return classes;
}

constexpr std::array<Class, 256> kClasses = make_classes();

Class class_at(std::string_view text, std::size_t at) {
  return kClasses[static_cast<unsigned char>(text[at])];
}

/// The first place at or after `at` whose class is another one.
std::size_t skip(std::string_view text, std::size_t at, Class same) {
  while (at < text.size() && class_at(text, at) == same) ++at;
  return at;
}

/// Length of 's|'t|'re|'ve|'m|'ll|'d at `at`, where an apostrophe is, or 0.
std::size_t contraction(std::string_view text, std::size_t at) {
  const char second = at + 1 < text.size() ? text[at + 1] : '\0';
  if (second == 's' || second == 't' || second == 'm' || second == 'd') return 2;
  const char third = at + 2 < text.size() ? text[at + 2] : '\0';
  const bool long_form = third == 'e' ? second == 'r' || second == 'v' : third == 'l' && second == 'l';
  return long_form ? 3 : 0;
}

/// End of the word at `at` < text.size() by GPT-2's pattern, or 0 when a character beyond ASCII has a say in
/// it.
std::size_t ascii_word_end(std::string_view text, std::size_t at) {
  std::size_t begin = at;
  Class kind = class_at(text, at);
  if (text[at] == '\'') {
    const std::size_t length = contraction(text, at);
    if (length > 0) return at + length;
  } else if (text[at] == ' ' && at + 1 < text.size()) {
    const Class following = class_at(text, at + 1);
    if (following != kSpace) {
      begin = at + 1;
      kind = following;
    }
  }
  if (kind == kBeyondAscii) return 0;
  const std::size_t end = skip(text, begin, kind);
  if (end == text.size()) return end;
  if (class_at(text, end) == kBeyondAscii) return 0;
  return kind == kSpace && end - at > 1 ? end - 1 : end;
}

}  // namespace

SplitRules::SplitRules(std::vector<std::string> patterns, const std::string& where)
    : patterns_(std::move(patterns)) {
  constexpr std::size_t kMostPatterns = 32;  // each splits the pieces of the one before, on the stack
  if (patterns_.size() > kMostPatterns) {
    throw core::InputError(fmt::format("{}: {} splitting patterns; at most {} are read", where,
                                       patterns_.size(), kMostPatterns));
  }
  for (const auto& pattern : patterns_) {
    compiled_.push_back(std::make_shared<const CompiledPattern>(pattern, where));
  }
  is_gpt2_ = patterns_.size() == 1 && patterns_.front() == kGpt2Pattern;
  cuts_before_blanks_ =
      is_gpt2_ ||
      (patterns_.size() == 1 && (patterns_.front() == kLlama3Pattern || patterns_.front() == kQwen2Pattern));
}

struct WordSplitter::Scratch {
  explicit Scratch(const SplitRules& given) : rules(given) {}
  const SplitRules& rules;
  PatternMatcher matcher;
  std::vector<std::size_t> pending;  ///< ends of the pieces of the last match of the first pattern
  std::size_t taken = 0;             ///< of them
};

WordSplitter::WordSplitter(const SplitRules& rules) : scratch_(std::make_unique<Scratch>(rules)) {}
WordSplitter::WordSplitter(WordSplitter&&) noexcept = default;
WordSplitter& WordSplitter::operator=(WordSplitter&&) noexcept = default;
WordSplitter::~WordSplitter() = default;

void WordSplitter::begin(std::string_view text) {
  text_ = text;
  at_ = 0;
  scratch_->pending.clear();
  scratch_->taken = 0;
}

std::size_t WordSplitter::next(std::span<std::size_t> ends) {
  return scratch_->rules.is_gpt2() ? next_gpt2(ends) : next_by_rules(ends);
}

std::size_t WordSplitter::next_gpt2(std::span<std::size_t> ends) {
  std::size_t count = 0;
  while (count < ends.size() && at_ < text_.size()) {
    std::size_t end = ascii_word_end(text_, at_);
    if (end == 0) end = scratch_->matcher.find(*scratch_->rules.compiled_.front(), text_, at_)->second;
    ends[count++] = at_ = end;
  }
  return count;
}

std::size_t WordSplitter::next_by_rules(std::span<std::size_t> ends) {
  auto& pending = scratch_->pending;
  std::size_t count = 0;
  while (count < ends.size()) {
    if (scratch_->taken == pending.size()) {
      if (at_ == text_.size()) break;
      pending.clear();
      scratch_->taken = 0;
      // One match of the first pattern at a time; what lies before it is a piece too.
      std::size_t begin = text_.size();
      std::size_t end = begin;
      if (!scratch_->rules.compiled_.empty()) {
        const auto match = scratch_->matcher.find(*scratch_->rules.compiled_.front(), text_, at_);
        if (match) std::tie(begin, end) = *match;
      }
      if (begin > at_) split_piece(at_, begin, 1);
      if (end > begin) split_piece(begin, end, 1);
      at_ = end;
    }
    const std::size_t n = std::min(ends.size() - count, pending.size() - scratch_->taken);
    std::copy_n(pending.begin() + static_cast<std::ptrdiff_t>(scratch_->taken), n,
                ends.begin() + static_cast<std::ptrdiff_t>(count));
    scratch_->taken += n;
    count += n;
  }
  return count;
}

void WordSplitter::split_piece(std::size_t first, std::size_t last, std::size_t rule) {
  if (rule >= scratch_->rules.compiled_.size()) {
    scratch_->pending.push_back(last);
    return;
  }
  const std::string_view piece = text_.substr(first, last - first);
  for (std::size_t at = 0; at < piece.size();) {
    const auto match = scratch_->matcher.find(*scratch_->rules.compiled_[rule], piece, at);
    const auto [begin, end] = match.value_or(std::pair{piece.size(), piece.size()});
    if (begin > at) split_piece(first + at, first + begin, rule + 1);
    if (end > begin) split_piece(first + begin, first + end, rule + 1);
    at = end;
  }
}

}  // namespace rooflm::text
