// JSON with faults that can be read in one way only.
#include "foreign/json_repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/utf8_bytes.h"

namespace rooflm::foreign {
namespace {

bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

class Repair {
 public:
  Repair(std::string_view text, RepairedJson& made) : text_(text), made_(made) {
    made_.text.reserve(text.size());
  }

  void run() {
    while (at_ < text_.size()) {
      if (text_[at_] == '"') {
        take_string();
      } else if (text_[at_] == ',' && is_before_bracket()) {
        replace(1, "", commas_);
      } else if (const std::size_t length = not_finite(); length > 0) {
        replace(length, "null", numbers_);
      } else {
        made_.text += text_[at_++];
      }
    }
    const auto say = [&](std::size_t times, const char* what) {
      if (times > 0) made_.repairs.push_back(fmt::format("{} {}", times, what));
    };
    say(commas_, "commas before a closing bracket are left out");
    say(numbers_, "numbers that are NaN or infinite are left out");
    say(controls_, "control characters and line breaks within texts are kept");
    say(escapes_, "backslashes that escape nothing are kept");
  }

 private:
  void replace(std::size_t length, std::string_view with, std::size_t& counter) {
    made_.text += with;
    at_ += length;
    ++counter;
    made_.moved.emplace_back(made_.text.size(), at_);
  }

  void take_string() {
    made_.text += text_[at_++];
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\') {
        const std::size_t length = escape_length();
        if (length == 0) {
          replace(1, R"(\\)", escapes_);
        } else {
          made_.text += text_.substr(at_, length);
          at_ += length;
        }
      } else if (static_cast<unsigned char>(c) < ' ') {
        replace(1, fmt::format("\\u{:04x}", c), controls_);
      } else {
        made_.text += c;
        ++at_;
        if (c == '"') return;
      }
    }
  }

  /// 0 where what follows the backslash is no escape of JSON: a path of Windows.
  [[nodiscard]] std::size_t escape_length() const {
    constexpr std::size_t kHexDigits = 4;
    const std::string_view rest = text_.substr(at_ + 1);
    if (rest.empty()) return 1;
    if (rest[0] == 'u') {
      const std::string_view digits = rest.substr(1, kHexDigits);
      return digits.size() == kHexDigits && std::ranges::all_of(digits, is_hex) ? 2 + kHexDigits : 0;
    }
    return std::string_view(R"("\/bfnrt)").find(rest[0]) == std::string_view::npos ? 0 : 2;
  }

  [[nodiscard]] bool is_before_bracket() const {
    const auto next = text_.find_first_not_of(" \t\r\n", at_ + 1);
    return next != std::string_view::npos && (text_[next] == ']' || text_[next] == '}');
  }

  /// Length of a number that is none, as Python, C++ and JavaScript write it; 0 for anything else.
  [[nodiscard]] std::size_t not_finite() const {
    constexpr std::array<std::string_view, 7> kWords = {"NaN", "nan", "Infinity", "infinity",
                                                        "inf", "Inf", "INF"};
    const std::size_t sign = text_[at_] == '-' || text_[at_] == '+' ? 1 : 0;
    if (at_ > 0 && std::isalnum(static_cast<unsigned char>(text_[at_ - 1])) != 0) return 0;
    const std::string_view rest = text_.substr(at_ + sign);
    const auto end =
        std::ranges::find_if(rest, [](char c) { return std::isalpha(static_cast<unsigned char>(c)) == 0; });
    const auto length = static_cast<std::size_t>(end - rest.begin());
    return std::ranges::find(kWords, rest.substr(0, length)) == kWords.end() ? 0 : sign + length;
  }

  std::string_view text_;
  RepairedJson& made_;
  std::size_t at_ = 0, commas_ = 0, numbers_ = 0, controls_ = 0, escapes_ = 0;
};

}  // namespace

std::size_t RepairedJson::original(std::size_t position) const {
  const auto after =
      std::ranges::upper_bound(moved, position, {}, &std::pair<std::size_t, std::size_t>::first);
  if (after != moved.begin()) position = std::prev(after)->second + (position - std::prev(after)->first);
  return utf8.empty() ? position : core::bytes_from_utf8(std::string_view(utf8).substr(0, position)).size();
}

RepairedJson repair_json(std::string_view text) {
  RepairedJson made;
  std::string utf8 = core::bytes_as_utf8(text);
  if (utf8.size() != text.size()) {
    made.repairs.emplace_back("bytes that are not UTF-8 are kept as private characters");
    made.utf8 = std::move(utf8);
    text = made.utf8;
  }
  Repair(text, made).run();
  return made;
}

}  // namespace rooflm::foreign
