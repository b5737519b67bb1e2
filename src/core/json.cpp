// Parses JSON from outside; the only place that does.
#include "core/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/printable.h"

namespace rooflm::core {
namespace {

using nlohmann::json;

/// "line 3, column 14" of the byte at `offset`.
std::string place_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", line, before.size() - begin + 1);
}

/// One text, with its names for messages.
class Source {
 public:
  Source(std::string_view text, const std::string& where, std::string_view what)
      : text_(text), where_(where), what_(what) {}

  [[nodiscard]] json parse(const json::parser_callback_t& check) const {
    if (text_.size() > kMostJsonBytes) {
      fail(fmt::format("has {} bytes of JSON, more than the {} that are read", text_.size(), kMostJsonBytes));
    }
    check_depth();
    try {
      return json::parse(text_.begin(), text_.end(), check);
    } catch (const json::parse_error& error) {
      const std::size_t offset = error.byte > 0 ? error.byte - 1 : 0;
      fail(fmt::format("is not valid JSON at {} ({} bytes)", place_of(text_, offset), text_.size()));
    } catch (const json::out_of_range& error) {
      fail(fmt::format("holds a number that is too large{}", place_of_number(error.what())));
    } catch (const json::exception& error) {
      fail(fmt::format("is not valid JSON: {}", printable(error.what())));
    }
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw InputError(fmt::format("{}: {} {}", where_, what_, reason));
  }

 private:
  /// Counts open brackets outside of strings. Up to the first syntax error, where the parser stops, this is
  /// the parser's depth.
  void check_depth() const {
    std::size_t depth = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (in_string) {
        if (c == '\\') ++i;
        if (c == '"') in_string = false;
      } else if (c == '"') {
        in_string = true;
      } else if (c == '[' || c == '{') {
        if (++depth > kMostJsonDepth) {
          fail(fmt::format("is nested deeper than {} levels at {}", kMostJsonDepth, place_of(text_, i)));
        }
      } else if ((c == ']' || c == '}') && depth > 0) {
        --depth;
      }
    }
  }

  /// The place of the number that the library quotes at the end of its message.
  [[nodiscard]] std::string place_of_number(std::string_view message) const {
    const auto end = message.rfind('\'');
    const auto begin = end == std::string_view::npos || end == 0 ? end : message.rfind('\'', end - 1);
    if (begin == std::string_view::npos) return "";
    const std::string_view number = message.substr(begin + 1, end - begin - 1);
    const auto offset = text_.find(number);
    return offset == std::string_view::npos
               ? ""
               : fmt::format(": {} at {}", printable(number), place_of(text_, offset));
  }

  std::string_view text_;
  const std::string& where_;
  std::string_view what_;
};

/// The text with quotes around the words that Python's json writes for numbers which JSON lacks.
std::string with_quoted_numbers(std::string_view text) {
  constexpr std::array<std::string_view, 3> kWords{"-Infinity", "Infinity", "NaN"};
  std::string quoted;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    const auto* const word =
        in_string ? kWords.end()
                  : std::ranges::find_if(kWords, [&](std::string_view one) { return rest.starts_with(one); });
    if (word != kWords.end()) {
      quoted += fmt::format("\"{}\"", *word);
      i += word->size();
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    const std::size_t taken = in_string && text[i] == '\\' ? 2 : 1;
    quoted += rest.substr(0, taken);
    i += taken;
  }
  return quoted;
}

}  // namespace

json parse_json(std::string_view text, const std::string& where, std::string_view what) {
  return Source(text, where, what).parse(nullptr);
}

json parse_json_object(std::string_view text, const std::string& where, std::string_view what) {
  const Source source(text, where, what);
  std::set<std::string> names;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second) {
      source.fail(fmt::format("names {} twice", printable(parsed.get<std::string>())));
    }
    return true;
  };
  json root = source.parse(check);
  if (!root.is_object()) source.fail("is not a JSON object");
  return root;
}

json parse_python_json_object(std::string_view text, const std::string& where, std::string_view what) {
  return parse_json_object(with_quoted_numbers(text), where, what);
}

std::size_t line_of_key(std::string_view text, std::string_view key) {
  const auto offset = text.find(fmt::format("\"{}\"", key));
  const std::string_view before = text.substr(0, offset == std::string_view::npos ? 0 : offset);
  return 1 + static_cast<std::size_t>(std::ranges::count(before, '\n'));
}

std::string shown(const json& value) {
  // Avoids writing out a large value only to truncate it.
  constexpr std::size_t kManyItems = 100;
  if (value.is_structured() && value.size() > kManyItems) {
    return fmt::format("{} of {} items", value.is_array() ? "a list" : "an object", value.size());
  }
  return printable(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace rooflm::core
