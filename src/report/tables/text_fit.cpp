// Text that fits the width of a terminal.
#include "report/tables/text_fit.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace rooflm::report {
namespace {

constexpr std::size_t kGap = 2;          // blanks between columns
constexpr std::size_t kLeastText = 24;   // a column of text is not made narrower than this
constexpr std::size_t kLeastWidth = 40;  // of a table; a narrower terminal wraps by itself

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

/// Bytes of the first `columns` characters.
std::size_t bytes_of(std::string_view text, std::size_t columns) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (begins_character(text[i]) && seen++ == columns) return i;
  }
  return text.size();
}

/// The leading columns that say what a row is: the first, and texts after it, in less than half of the width.
std::size_t count_keys(const std::vector<std::size_t>& widths, const std::vector<bool>& is_number,
                       std::size_t width) {
  std::size_t used = 0;
  std::size_t keys = 0;
  while (keys < widths.size() && (keys == 0 || !is_number[keys])) {
    used += widths[keys] + kGap;
    if (keys > 0 && 2 * used > width) break;
    ++keys;
  }
  return keys;
}

/// One block with narrower texts, the widest first; nothing when even that is too wide.
std::optional<ColumnBlock> one_block(std::vector<std::size_t> widths, const std::vector<bool>& is_number,
                                     std::size_t width) {
  ColumnBlock block;
  std::size_t total = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    block.columns.push_back(i);
    total += widths[i] + (i > 0 ? kGap : 0);
  }
  while (total > width) {
    std::size_t widest = widths.size();
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (is_number[i] || widths[i] <= kLeastText) continue;
      if (widest == widths.size() || widths[i] > widths[widest]) widest = i;
    }
    if (widest == widths.size()) return std::nullopt;
    --widths[widest];
    --total;
  }
  block.widths = std::move(widths);
  return block;
}

}  // namespace

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
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
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    for (const std::string& line : wrap(text.substr(0, end), std::max(width, kLeastWidth)))
      out += line + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::vector<ColumnBlock> column_blocks(const std::vector<std::size_t>& widths,
                                       const std::vector<bool>& is_number, std::size_t width) {
  width = std::max(width, kLeastWidth);
  if (auto block = one_block(widths, is_number, width)) return {std::move(*block)};
  const std::size_t keys = count_keys(widths, is_number, width);
  ColumnBlock first;
  std::size_t of_keys = 0;
  for (std::size_t i = 0; i < keys; ++i) {
    first.columns.push_back(i);
    first.widths.push_back(keys == 1 ? std::min(widths[i], std::max(kLeastText, width / 2)) : widths[i]);
    of_keys += first.widths.back() + kGap;
  }
  std::vector<ColumnBlock> blocks = {first};
  std::size_t used = of_keys;
  for (std::size_t i = keys; i < widths.size(); ++i) {
    const std::size_t left = width - std::min(width, used);
    const bool is_wrapped = !is_number[i] && left >= kLeastText;
    if (widths[i] > left && !is_wrapped && blocks.back().columns.size() > keys) {
      blocks.push_back(first);
      used = of_keys;
    }
    const std::size_t room = width - std::min(width, used);
    const std::size_t taken = is_number[i] ? widths[i] : std::min(widths[i], std::max(kLeastText, room));
    blocks.back().columns.push_back(i);
    blocks.back().widths.push_back(taken);
    used += taken + kGap;
  }
  return blocks;
}

}  // namespace rooflm::report
