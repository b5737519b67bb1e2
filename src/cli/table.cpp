// The tables of src/report as commands print them.
#include "cli/table.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/values.h"
#include "program/program.h"
#include "report/views/views.h"

namespace rooflm::cli {
namespace {

constexpr std::string_view kBold = "\x1b[1m", kPlain = "\x1b[0m";

struct Word {
  std::string_view word, colour;
};
/// Verdicts are whole cells: between blanks or at the end of a line.
constexpr std::array kWords = {Word{"FASTER", "\x1b[32m"}, Word{"SLOWER", "\x1b[31m"},
                               Word{"UNSURE", "\x1b[33m"}, Word{"oom", "\x1b[31m"}};

std::string with_words(std::string_view line) {
  std::string out(line);
  for (const auto& [word, colour] : kWords) {
    for (std::size_t at = out.find(word); at != std::string::npos; at = out.find(word, at)) {
      const std::size_t end = at + word.size();
      const bool begins = at >= 2 && out.compare(at - 2, 2, "  ") == 0;
      const bool ends = end == out.size() || out[end] == ' ';
      at = end;
      if (!begins || !ends) continue;
      out.insert(end, kPlain);
      out.insert(end - word.size(), colour);
      at = end + colour.size() + kPlain.size();
    }
  }
  return out;
}

bool is_rule(std::string_view line) {
  return line.starts_with('-') && line.find_first_not_of("- ") == std::string_view::npos;
}

}  // namespace

void TableOptions::add_to(CommandLine& line, const std::string& help, const std::string& group,
                          const std::function<std::vector<Column>()>& known) {
  Option shown = line.add_option("--format", format, help);
  Option chosen = line.add_option("--columns", columns,
                                  "Columns to show, by key or title; any key of --format json works");
  Option all = line.add_flag("--wide", wide, "Show all columns even on a narrow terminal");
  shown.type_name(kFormats).show_default();
  chosen.type_name("NAME,...");
  if (known) {
    line.offer_words("--columns", [known] {
      std::vector<std::string> keys;
      for (const Column& column : known()) keys.push_back(column.key);
      return keys;
    });
  }
  if (group.empty()) return;
  for (Option* option : {&shown, &chosen, &all}) option->group(group);
}

std::vector<std::string> view_names() {
  std::vector<std::string> names;
  for (const report::ViewInfo& view : report::all_views()) names.emplace_back(view.name);
  return names;
}

std::vector<Column> columns_of_all_views() {
  std::vector<Column> all;
  std::set<std::string> keys;
  for (const report::ViewInfo& view : report::all_views()) {
    for (Column& column : report::columns_of_view(view.name, {}).value_or(std::vector<Column>())) {
      if (keys.insert(column.key).second) all.push_back(std::move(column));
    }
  }
  return all;
}

TableStyle TableOptions::style() const {
  return {.format = parse_format(format),
          .columns = {.names = parse_names("--columns", columns), .wide = wide}};
}

void require_columns_of_views(std::span<const std::string> views, const TableStyle& style, bool is_ours) {
  std::vector<std::string> roles;
  for (std::size_t i = 0; is_ours && i < program::kRoles; ++i)
    roles.emplace_back(name_of(static_cast<program::Role>(i)));
  std::vector<Column> known;
  for (const std::string& view : views) {
    const auto columns = report::columns_of_view(view, roles);
    if (!columns) return;  // what was recorded names them
    known.insert(known.end(), columns->begin(), columns->end());
  }
  require_columns(std::move(known), style);
}

void require_columns(std::vector<Column> columns, const TableStyle& style) {
  const Table table{.columns = std::move(columns), .rows = {}, .notes = {}};
  const Table* tables = &table;
  report::check_columns(style.columns, {&tables, 1});
}

std::string show_table(const Table& table, const TableStyle& style) {
  return show_tables(std::span(&table, 1), style);
}

std::string show_tables(std::span<const Table> tables, const TableStyle& style) {
  std::vector<const Table*> all;
  for (const Table& table : tables) all.push_back(&table);
  report::check_columns(style.columns, all);
  const std::size_t width = style.columns.wide ? 0 : terminal_width();
  std::string text;
  for (const Table& table : tables) {
    const Table chosen = report::choose_columns(table, style.columns, style.format, width);
    if (chosen.columns.empty()) continue;
    if (!text.empty()) text += '\n';
    text += report::format_table(chosen, style.format, width);
  }
  return style.format == Format::table ? coloured(text) : text;
}

std::string coloured(const std::string& text) {
  if (!coloured_output()) return text;
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    const std::size_t after = std::min(end + 1, text.size());
    const std::string_view next =
        std::string_view(text).substr(after, std::min(text.find('\n', after), text.size()) - after);
    const bool is_title = line.starts_with("== ") || (!line.empty() && !is_rule(line) && is_rule(next));
    out += is_title ? std::string(kBold).append(line).append(kPlain) : with_words(line);
    if (end < text.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

}  // namespace rooflm::cli
