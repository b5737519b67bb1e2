// Splitting patterns on PCRE2: compiled once, matched by its JIT, without checking UTF-8 again.
#include "text/bpe_pattern.h"

#include <fmt/format.h>

#include <array>
#include <new>

#include "core/error.h"
#include "core/printable.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace rooflm::text {
namespace {

constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::size_t kJitStackStart = std::size_t{64} << 10U;
constexpr std::size_t kJitStackMost = std::size_t{16} << 20U;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeStack {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

constexpr std::size_t kMostPatternBytes = std::size_t{64} << 10U;

/// What an error of matching means to whoever has the pattern.
std::string reason_of(int code) {
  switch (code) {
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
      return "it tries too many ways to match";
    case PCRE2_ERROR_JIT_STACKLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
    case PCRE2_ERROR_NOMEMORY:
      return "it needs too much memory to match";
    case PCRE2_ERROR_RECURSELOOP:
      return "it calls itself without an end";
    default:
      return fmt::format("it cannot be matched (PCRE2 error {})", code);
  }
}

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

std::string spell_out_white_space(std::string_view pattern) {
  std::string out;
  bool in_brackets = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += in_brackets ? std::string(kWhiteSpace) : fmt::format("[{}]", kWhiteSpace);
      } else if (escaped == 'S' && !in_brackets) {
        out += fmt::format("[^{}]", kWhiteSpace);
      } else {
        out += {c, escaped};
      }
      continue;
    }
    if (c == '[') in_brackets = true;
    if (c == ']') in_brackets = false;
    out += c;
  }
  return out;
}

struct CompiledPattern::Code {
  std::unique_ptr<pcre2_code, FreeCode> code;
  bool has_jit = false;
  std::string where, what;  ///< for messages
};

CompiledPattern::CompiledPattern(std::string_view pattern, const std::string& where, const std::string& what)
    : code_(std::make_unique<Code>()) {
  if (pattern.size() > kMostPatternBytes) {
    throw core::InputError(fmt::format("{}: {} has {} bytes; at most {} are read", where, what,
                                       pattern.size(), kMostPatternBytes));
  }
  const std::string spelled = spell_out_white_space(pattern);
  int error = 0;
  PCRE2_SIZE place = 0;
  // \C would match a part of a character.
  code_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr));
  if (error == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
  if (code_->code == nullptr) {
    throw core::InputError(fmt::format("{}: {} '{}' is not a regular expression: {}, near character {}",
                                       where, what, core::printable(pattern), error_text(error), place));
  }
  code_->where = where;
  code_->what = what;
  code_->has_jit = pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE) == 0;
}

CompiledPattern::~CompiledPattern() = default;

struct PatternMatcher::Memory {
  std::unique_ptr<pcre2_match_data, FreeMatch> match{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, FreeContext> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, FreeStack> stack{
      pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr)};
};

PatternMatcher::PatternMatcher() : memory_(std::make_unique<Memory>()) {
  if (!memory_->match || !memory_->context || !memory_->stack) throw std::bad_alloc();
  pcre2_jit_stack_assign(memory_->context.get(), nullptr, memory_->stack.get());
}

PatternMatcher::~PatternMatcher() = default;

std::optional<std::pair<std::size_t, std::size_t>> PatternMatcher::find(const CompiledPattern& pattern,
                                                                        std::string_view text,
                                                                        std::size_t from) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto& code = *pattern.code_;
  const auto match = code.has_jit ? pcre2_jit_match : pcre2_match;
  const int found = match(code.code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY,
                          memory_->match.get(), memory_->context.get());
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
  if (found < 0) {
    throw core::InputError(
        fmt::format("{}: {} fails at byte {} of a text: {}", code.where, code.what, from, reason_of(found)));
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(memory_->match.get());
  // A pattern can move the beginning of its match (\K).
  if (ends[0] < from || ends[1] <= ends[0] || ends[1] > text.size()) {
    throw core::InputError(fmt::format("{}: {} matches nothing, or backwards, at byte {} of a text",
                                       code.where, code.what, from));
  }
  return std::pair{ends[0], ends[1]};
}

}  // namespace rooflm::text
