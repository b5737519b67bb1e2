// Columns of a table that fit the width of a terminal.
#include "report/tables/column_blocks.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace rooflm::report {
namespace {

constexpr std::size_t kGap = 2;          // blanks between columns
constexpr std::size_t kLeastText = 24;   // a column of text is not made narrower than this
constexpr std::size_t kLeastWidth = 40;  // of a table; a narrower terminal wraps by itself

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
