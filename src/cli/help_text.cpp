// Help, as wide as the terminal.
#include "cli/help_text.h"

#include <algorithm>

#include "cli/output.h"

namespace rooflm::cli {
namespace {

std::size_t longest_word(std::string_view text) {
  std::size_t longest = 0;
  for (std::size_t end = 0; end != std::string_view::npos;
       text.remove_prefix(std::min(end + 1, text.size()))) {
    end = text.find(' ');
    longest = std::max(longest, std::min(end, text.size()));
  }
  return longest;
}

/// Where a line's text begins, after the name of an option and two spaces or more; where the line begins, if
/// there is too little room beside the name.
std::size_t text_column(std::string_view line, std::size_t width) {
  constexpr std::string_view kGap = "  ";
  const std::size_t begin = line.find_first_not_of(' ');
  const std::size_t gap = line.find(kGap, begin);
  const std::size_t text = gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
  const bool has_room = text != std::string_view::npos && 3 * text <= 2 * width &&
                        text + longest_word(line.substr(text)) <= width;
  return has_room ? text : begin;
}

void add_wrapped(std::string& all, std::string_view line, std::size_t width) {
  if (width == 0 || line.size() <= width) {
    all += line;
    return;
  }
  const std::size_t column = text_column(line, width);
  std::size_t indent = column;  // within what is left of the line, where its text begins
  std::size_t room = width;
  while (line.size() > room) {
    std::size_t end = line.rfind(' ', room);
    if (end == std::string_view::npos || end <= indent) end = line.find(' ', std::max(room, indent));
    if (end == std::string_view::npos) break;
    all += line.substr(0, line.find_last_not_of(' ', end) + 1);
    all += '\n' + std::string(column, ' ');
    line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
    indent = 0;
    room = width - column;
  }
  all += line;
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t width) {
  std::string all;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    add_wrapped(all, text.substr(0, end), width);
    if (end == std::string_view::npos) break;
    all += '\n';
    text.remove_prefix(end + 1);
  }
  return all;
}

void write_help(std::string_view text) {
  constexpr std::size_t kLeast = 40;
  const std::size_t width = terminal_width();
  write_out(width == 0 ? std::string(text) : wrapped(text, std::max(width, kLeast)));
}

}  // namespace rooflm::cli
