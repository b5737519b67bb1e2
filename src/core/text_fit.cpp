// Text that fits the width of a terminal.
#include "core/text_fit.h"

#include <algorithm>

namespace rooflm::core {
namespace {

constexpr std::size_t kLeastWidth = 40;

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

/// Bytes of the first `columns` characters.
std::size_t bytes_of(std::string_view text, std::size_t columns) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (begins_character(text[i]) && seen++ == columns) return i;
  }
  return text.size();
}

std::size_t longest_word(std::string_view text) {
  std::size_t longest = 0;
  for (std::size_t end = 0; end != std::string_view::npos;
       text.remove_prefix(std::min(end + 1, text.size()))) {
    end = text.find(' ');
    longest = std::max(longest, width_of(text.substr(0, end)));
  }
  return longest;
}

/// The byte where a line's text begins, after the name of an option and two spaces or more; where the line
/// begins, if there is too little room beside the name.
std::size_t text_begin(std::string_view line, std::size_t width) {
  constexpr std::string_view kGap = "  ";
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = line.find(kGap, begin);
  const std::size_t text = gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
  if (text == std::string_view::npos) return begin;
  const std::size_t column = width_of(line.substr(0, text));
  const bool has_room = 3 * column <= 2 * width && column + longest_word(line.substr(text)) <= width;
  return has_room ? text : begin;
}

void add_wrapped(std::string& all, std::string_view line, std::size_t width) {
  if (width_of(line) <= width) {
    all += line;
    return;
  }
  std::size_t begin = text_begin(line, width);  // within what is left of the line
  const std::size_t column = width_of(line.substr(0, begin));
  std::size_t room = width;
  while (width_of(line) > room) {
    const std::size_t most = bytes_of(line, room);
    std::size_t end = line.rfind(' ', most);
    if (end == std::string_view::npos || end <= begin) end = line.find(' ', std::max(most, begin));
    if (end == std::string_view::npos) break;
    all += line.substr(0, line.find_last_not_of(' ', end) + 1);
    line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
    if (line.empty()) return;
    all += '\n' + std::string(column, ' ');
    begin = 0;
    room = width - column;
  }
  all += line;
}

}  // namespace

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::vector<std::string> wrap_cell(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (width_of(text) > width) {
    const std::size_t most = bytes_of(text, width);
    const std::size_t space = text.substr(0, most + 1).rfind(' ');
    const bool has_space = space != std::string_view::npos && space > 0;
    lines.emplace_back(text.substr(0, has_space ? space : most));
    text.remove_prefix(has_space ? space + 1 : most);
  }
  lines.emplace_back(text);
  return lines;
}

std::string wrap_lines(std::string_view text, std::size_t width) {
  if (width == 0) return std::string(text);
  std::string all;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    add_wrapped(all, text.substr(0, end), std::max(width, kLeastWidth));
    if (end == std::string_view::npos) break;
    all += '\n';
    text.remove_prefix(end + 1);
  }
  return all;
}

}  // namespace rooflm::core
