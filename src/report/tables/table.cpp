// Rows of named values, printed for people or for programs.
#include "report/tables/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/names.h"
#include "core/printable.h"
#include "core/text_fit.h"
#include "core/units.h"
#include "report/tables/column_blocks.h"

namespace rooflm::report {
namespace {

bool is_number(const Cell& cell) {
  return std::holds_alternative<std::int64_t>(cell) || std::holds_alternative<double>(cell);
}

std::string format_number(double value, Show show) {
  switch (show) {
    case Show::plain:
      return fmt::format("{:.6g}", value);
    case Show::brief:
      return std::abs(value) >= 1e3 && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{:#.4g}", value);
    case Show::fixed1:
      return fmt::format("{:.1f}", value);
    case Show::fixed2:
      return fmt::format("{:.2f}", value);
    case Show::fixed3:
      return fmt::format("{:.3f}", value);
    case Show::percent:
      return fmt::format("{:.1f}%", 100 * value);
    case Show::percent2:
      return fmt::format("{:.2f}%", 100 * value);
    case Show::si:
      return core::format_si(value);
    case Show::bytes:
      return core::format_bytes(value);
    case Show::seconds:
      return core::format_seconds(value);
  }
  return "?";
}

/// A "|" inside a cell of a Markdown table would end it, a "<" begin HTML.
std::string escape_markdown(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<') out += '\\';
    out += c;
  }
  return out;
}

/// A title or a text cell on one line, in the way of the format.
std::string shown_text(const std::string& text, bool markdown) {
  const std::string line = core::printable(text, core::kUnlimited);
  return markdown ? escape_markdown(line) : line;
}

/// Title line, then one line per row; `right` says which columns hold numbers.
struct Grid {
  std::vector<std::vector<std::string>> lines;
  std::vector<std::size_t> widths;
  std::vector<bool> right;
};

Grid layout(const Table& table, bool markdown) {
  Grid grid;
  grid.lines.emplace_back();
  for (const Column& column : table.columns) grid.lines[0].push_back(shown_text(column.title, markdown));
  grid.right.assign(table.columns.size(), false);
  for (const Row& row : table.rows) {
    auto& line = grid.lines.emplace_back();
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const Cell* cell = row.find(table.columns[i].key);
      const std::string text = cell == nullptr ? "-" : format_cell(*cell, table.columns[i].show);
      line.push_back(shown_text(text, markdown));
      if (cell != nullptr && is_number(*cell)) grid.right[i] = true;
    }
  }
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    std::size_t width = 0;
    for (const auto& line : grid.lines) width = std::max(width, core::width_of(line[i]));
    grid.widths.push_back(width);
  }
  return grid;
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string fill(width - std::min(width, core::width_of(text)), ' ');
  return right ? fill + text : text + fill;
}

std::string format_markdown(const Table& table) {
  const Grid grid = layout(table, true);
  std::string out = table.heading.empty() ? "" : core::printable_lines(table.heading) + "\n\n";
  for (std::size_t r = 0; r < grid.lines.size(); ++r) {
    out += "|";
    for (std::size_t i = 0; i < grid.widths.size(); ++i)
      out.append(" ").append(padded(grid.lines[r][i], grid.widths[i], grid.right[i])).append(" |");
    out += "\n";
    if (r > 0) continue;
    for (std::size_t i = 0; i < grid.widths.size(); ++i) {
      const std::size_t dashes = std::max<std::size_t>(grid.widths[i], 3);
      out.append("| ").append(dashes - 1, '-').append(grid.right[i] ? ": " : "- ");
    }
    out += "|\n";
  }
  for (const std::string& note : table.notes)
    out.append("\n").append(core::printable_lines(note)).append("\n");
  return out;
}

void add_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + "\n";
}

/// One line of the grid, where none of its cells need be wrapped.
void add_narrow_cells(std::string& out, const Grid& grid, std::size_t r, const ColumnBlock& block) {
  const std::size_t begin = out.size();
  for (std::size_t k = 0; k < block.columns.size(); ++k) {
    if (k > 0) out += "  ";
    const std::string& text = grid.lines[r][block.columns[k]];
    const std::size_t blanks = block.widths[k] - core::width_of(text);
    const bool is_right = grid.right[block.columns[k]];
    if (is_right) out.append(blanks, ' ');
    out += text;
    if (!is_right) out.append(blanks, ' ');
  }
  while (out.size() > begin && out.back() == ' ') out.pop_back();
  out += '\n';
}

/// One line of the grid, or several where cells are wrapped.
void add_cells(std::string& out, const Grid& grid, std::size_t r, const ColumnBlock& block) {
  bool is_narrow = true;
  for (std::size_t k = 0; k < block.columns.size(); ++k)
    is_narrow = is_narrow && core::width_of(grid.lines[r][block.columns[k]]) <= block.widths[k];
  if (is_narrow) return add_narrow_cells(out, grid, r, block);
  std::vector<std::vector<std::string>> cells;
  std::size_t height = 1;
  for (std::size_t k = 0; k < block.columns.size(); ++k) {
    cells.push_back(
        core::wrap_cell(grid.lines[r][block.columns[k]], std::max<std::size_t>(block.widths[k], 1)));
    height = std::max(height, cells.back().size());
  }
  for (std::size_t h = 0; h < height; ++h) {
    std::string line;
    for (std::size_t k = 0; k < cells.size(); ++k) {
      if (k > 0) line += "  ";
      line += padded(h < cells[k].size() ? cells[k][h] : "", block.widths[k], grid.right[block.columns[k]]);
    }
    add_line(out, std::move(line));
  }
}

/// Blocks of columns, each with the titles and the lines from `begin` to before `end`.
std::string format_lines(const Grid& grid, const std::vector<ColumnBlock>& blocks, std::size_t begin,
                         std::size_t end) {
  std::string out;
  for (const ColumnBlock& block : blocks) {
    if (!out.empty()) out += "\n";
    for (std::size_t r = 0; r < end; r = r == 0 ? begin : r + 1) {
      add_cells(out, grid, r, block);
      if (r > 0) continue;
      std::string dashes;
      for (const std::size_t of : block.widths) {
        dashes += (dashes.empty() ? "" : "  ") + std::string(std::max<std::size_t>(of, 1), '-');
      }
      out += dashes + "\n";
    }
  }
  return out;
}

/// Whether the columns that stand in every block tell all lines from `begin` to before `end` apart.
bool keys_tell(const Grid& grid, const std::vector<ColumnBlock>& blocks, std::size_t begin, std::size_t end) {
  std::set<std::vector<std::string>> seen;
  for (std::size_t r = begin; r < end; ++r) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < blocks[1].columns.size() && blocks[0].columns[i] == blocks[1].columns[i];
         ++i) {
      keys.push_back(grid.lines[r][blocks[0].columns[i]]);
    }
    if (!seen.insert(std::move(keys)).second) return false;
  }
  return true;
}

/// A first column with the number of each line in its group, so that blocks can be held beside each other.
void number_lines(Grid& grid, const std::vector<std::size_t>& starts) {
  std::size_t widest = 1;
  grid.lines[0].insert(grid.lines[0].begin(), "#");
  for (std::size_t g = 0; g + 1 < starts.size(); ++g) {
    for (std::size_t r = starts[g]; r < starts[g + 1]; ++r) {
      grid.lines[r].insert(grid.lines[r].begin(), std::to_string(r - starts[g] + 1));
      widest = std::max(widest, grid.lines[r][0].size());
    }
  }
  grid.widths.insert(grid.widths.begin(), widest);
  grid.right.insert(grid.right.begin(), true);
}

/// Blocks of columns that fit; lines are numbered where the columns that are repeated do not tell them apart.
std::vector<ColumnBlock> fitted_blocks(Grid& grid, const std::vector<std::size_t>& starts,
                                       std::size_t width) {
  const std::size_t most = width > 0 ? width : std::numeric_limits<std::size_t>::max();
  std::vector<ColumnBlock> blocks = column_blocks(grid.widths, grid.right, most);
  for (std::size_t g = 0; g + 1 < starts.size() && blocks.size() > 1; ++g) {
    if (keys_tell(grid, blocks, starts[g], starts[g + 1])) continue;
    number_lines(grid, starts);
    return column_blocks(grid.widths, grid.right, most);
  }
  return blocks;
}

/// Where each group of lines with the same first cell begins, and the end of the last.
std::vector<std::size_t> group_starts(const Grid& grid) {
  std::vector<std::size_t> starts;
  for (std::size_t r = 1; r < grid.lines.size(); ++r) {
    if (r == 1 || grid.lines[r][0] != grid.lines[r - 1][0]) starts.push_back(r);
  }
  starts.push_back(grid.lines.size());
  return starts;
}

/// The groups below one another, each with its name above it and without the column of names.
std::string format_groups(Grid grid, const std::vector<std::size_t>& starts, std::size_t width) {
  const std::string title = grid.lines[0][0];
  std::vector<std::string> names;
  for (std::size_t g = 0; g + 1 < starts.size(); ++g) names.push_back(grid.lines[starts[g]][0]);
  for (auto& line : grid.lines) line.erase(line.begin());
  grid.widths.erase(grid.widths.begin());
  grid.right.erase(grid.right.begin());
  const std::vector<ColumnBlock> blocks = fitted_blocks(grid, starts, width);
  std::string out;
  for (std::size_t g = 0; g < names.size(); ++g) {
    if (g > 0) out += "\n";
    out += core::wrap_lines(fmt::format("{}: {}\n", title, names[g]), width);
    out += format_lines(grid, blocks, starts[g], starts[g + 1]);
  }
  return out;
}

/// In one block with a first column as wide as it would be.
bool fits(const Grid& grid, std::size_t width) {
  const std::vector<ColumnBlock> blocks = column_blocks(grid.widths, grid.right, width);
  return blocks.size() == 1 && blocks.front().widths.front() == grid.widths.front();
}

std::string format_text(const Table& table, std::size_t width) {
  constexpr std::size_t kLeastRows =
      3;  // of a group, on average: shorter ones are easier to compare in one table
  Grid grid = layout(table, false);
  const bool is_grouped = width > 0 && !table.rows.empty() && table.columns.front().is_group;
  const std::vector<std::size_t> starts = is_grouped ? group_starts(grid) : std::vector<std::size_t>();
  std::string out;
  if (is_grouped && table.rows.size() >= kLeastRows * (starts.size() - 1) && !fits(grid, width)) {
    out = format_groups(std::move(grid), starts, width);
  } else {
    const std::vector<ColumnBlock> blocks = fitted_blocks(grid, {1, grid.lines.size()}, width);
    const std::size_t group = grid.widths.size() - table.columns.size();  // behind the numbers of lines
    for (std::size_t g = 0; g + 1 < starts.size(); ++g) {
      for (std::size_t r = starts[g] + 1; r < starts[g + 1]; ++r) grid.lines[r][group].clear();
    }
    out = format_lines(grid, blocks, 1, grid.lines.size());
  }
  if (!table.heading.empty())
    out = core::wrap_lines(core::printable_lines(table.heading) + "\n", width) + out;
  for (const std::string& note : table.notes)
    out += core::wrap_lines(core::printable_lines(note) + "\n", width);
  return out;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// A value in full: shortest decimal that reads back as the same number.
std::string exact(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *integer);
  const auto* number = std::get_if<double>(&cell);
  return number != nullptr && std::isfinite(*number) ? fmt::format("{}", *number) : "";
}

/// Whether the column is in CSV: people see it, or some row says something there.
bool is_told(const Table& table, const std::string& key) {
  const auto says = [&](const Row& row) {
    const Cell* cell = row.find(key);
    return cell != nullptr && says_something(*cell);
  };
  return std::ranges::find(table.columns, key, &Column::key) != table.columns.end() ||
         std::ranges::any_of(table.rows, says);
}

std::string format_csv(const Table& table) {
  std::vector<std::string> keys;
  for (const Row& row : table.rows) {
    for (const auto& [key, value] : row.cells()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  std::erase_if(keys, [&](const std::string& key) { return !is_told(table, key); });
  std::string out = fmt::format("{}\n", fmt::join(keys, ","));
  for (const Row& row : table.rows) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Cell* cell = row.find(keys[i]);
      if (i > 0) out += ',';
      if (cell != nullptr) out += csv_field(exact(*cell));
    }
    out += "\n";
  }
  return out;
}

std::string json_value(const Cell& cell) {
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  if (const auto* text = std::get_if<std::string>(&cell))
    return nlohmann::json(*text).dump(-1, ' ', false, kReplace);
  const std::string value = exact(cell);
  return value.empty() ? "null" : value;
}

}  // namespace

std::string unit_of(const Column& column) {
  const bool is_share = column.show == Show::percent || column.show == Show::percent2;
  return column.unit.empty() && is_share ? "share" : column.unit;
}

void Row::set(std::string_view key, Cell value) {
  for (auto& [name, cell] : cells_) {
    if (name == key) {
      cell = std::move(value);
      return;
    }
  }
  cells_.emplace_back(key, std::move(value));
}

void Row::set_first(std::string_view key, Cell value) {
  if (find(key) != nullptr) return set(key, std::move(value));
  cells_.emplace(cells_.begin(), key, std::move(value));
}

const Cell* Row::find(std::string_view key) const {
  for (const auto& [name, cell] : cells_) {
    if (name == key) return &cell;
  }
  return nullptr;
}

double Row::number(std::string_view key) const {
  const Cell* cell = find(key);
  if (cell == nullptr) return 0;
  if (const auto* integer = std::get_if<std::int64_t>(cell)) return static_cast<double>(*integer);
  const auto* number = std::get_if<double>(cell);
  return number == nullptr ? 0 : *number;
}

std::string Row::text(std::string_view key) const {
  const Cell* cell = find(key);
  const auto* text = cell == nullptr ? nullptr : std::get_if<std::string>(cell);
  return text == nullptr ? "" : *text;
}

Format parse_format(std::string_view name) {
  static const std::vector<std::string> kNames = {"table", "md", "csv", "json"};
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) throw core::UsageError(core::unknown_name("format", name, kNames));
  return static_cast<Format>(found - kNames.begin());
}

std::string format_cell(const Cell& cell, Show show) {
  if (const auto* text = std::get_if<std::string>(&cell)) return text->empty() ? "-" : *text;
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag ? "yes" : "no";
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) {
    return show == Show::plain ? fmt::format("{}", *integer)
                               : format_number(static_cast<double>(*integer), show);
  }
  const auto* number = std::get_if<double>(&cell);
  return number != nullptr && std::isfinite(*number) ? format_number(*number, show) : "-";
}

bool says_something(const Cell& cell) {
  const auto* text = std::get_if<std::string>(&cell);
  return text == nullptr ? !std::holds_alternative<std::monostate>(cell) : !text->empty();
}

std::string more_rows(std::size_t count, std::string_view what) {
  return fmt::format("{} more {} (--top 0 shows all)", count, what);
}

std::string format_json_row(const Row& row) {
  std::string out = "{";
  for (const auto& [key, cell] : row.cells()) {
    if (out.size() > 1) out += ", ";
    out += json_value(key) + ": " + json_value(cell);
  }
  return out + "}";
}

std::string format_table(const Table& table, Format format, std::size_t width) {
  if (format == Format::csv) return format_csv(table);
  if (format == Format::md) return format_markdown(table);
  if (format == Format::table) return format_text(table, width);
  std::string out = "[";
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    out += (i > 0 ? ",\n " : "\n ") + format_json_row(table.rows[i]);
  }
  return out + (table.rows.empty() ? "]\n" : "\n]\n");
}

}  // namespace rooflm::report
