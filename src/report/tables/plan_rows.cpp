// The tables of `rooflm plan`: their columns, and their rows as cells of a record and back.
#include "report/tables/plan_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <variant>

namespace rooflm::report {
namespace {

Cell value_of(const record::Cell& cell) {
  constexpr double kExact = 0x1p53;
  if (!cell.value) return cell.text;
  const bool is_whole = std::abs(*cell.value) < kExact && *cell.value == std::round(*cell.value);
  return is_whole ? Cell(static_cast<std::int64_t>(*cell.value)) : Cell(*cell.value);
}

constexpr PlanSetting kPlanSettings[] = {{"model", "model", true, true},
                                         {"device", "device", true, true},
                                         {"gpus", "GPUs"},
                                         {"split", "split", true, true},
                                         {"framework", "framework", true, true},
                                         {"dtype", "dtype", true, true},
                                         {"micro_batch", "b"},
                                         {"global_batch", "batch"},
                                         {"seq", "T"},
                                         {"recompute", "recompute"},
                                         {"what_if", "what if", false, true}};

}  // namespace

void set_split(Row& row) {
  std::string split;
  for (const char* degree : {"dp", "cp", "ep", "tp", "pp", "interleave", "zero"}) {
    const int least = std::string_view(degree) == "zero" ? 1 : 2;
    if (row.number(degree) < least) continue;
    split += fmt::format("{}{}{:.0f}", split.empty() ? "" : " ", degree, row.number(degree));
  }
  if (row.number("short_ends") > 0) split += " short-ends";
  if (!split.empty()) row.set("split", split);
}

std::span<const PlanSetting> plan_settings() { return kPlanSettings; }

std::vector<Column> plan_columns(std::span<const Row> rows) {
  std::vector<Column> columns;
  for (const PlanSetting& setting : plan_settings())
    if (setting.is_column) columns.push_back({setting.key, setting.title});
  const auto has = [&](std::string_view key) {
    return rows.empty() ||
           std::ranges::any_of(rows, [&](const Row& row) { return row.find(key) != nullptr; });
  };
  const std::string currency = rows.empty() ? "" : rows.front().text("currency");
  const auto spare = [](const char* key, const char* title, Show show = Show::plain, const char* unit = "") {
    return Column{
        .key = key, .title = title, .show = show, .unit = unit, .is_group = false, .is_spare = true};
  };
  const Column figures[] = {{"status", "status"},
                            {"step_s", "step", Show::seconds, "s"},
                            spare("step_low_s", "from", Show::seconds, "s"),
                            spare("step_high_s", "to", Show::seconds, "s"),
                            {"tokens_per_s", "tokens/s", Show::si},
                            {"mfu", "MFU", Show::percent},
                            {"peak_bytes", "memory", Show::bytes, "byte"},
                            {"memory_left_bytes", "left", Show::bytes, "byte"},
                            {"days", "days", Show::brief}};
  columns.insert(columns.end(), std::begin(figures), std::end(figures));
  // What only some runs have.
  const Column optional[] = {
      {"price", currency.empty() ? "price" : fmt::format("price, {}", currency), Show::si, currency},
      {"goodput", "goodput", Show::percent},
      {"speed_up", "speed-up", Show::brief},
      {"efficiency", "efficiency", Show::percent},
      {"what_if", "what if"},
      {"reason", "why"},
      spare("checkpoint_interval_s", "checkpoint every", Show::seconds, "s")};
  std::ranges::copy_if(optional, std::back_inserter(columns),
                       [&](const Column& column) { return has(column.key); });
  const Column parts[] = {spare("step_kind", "kind"), spare("hfu", "HFU", Show::percent),
                          spare("exposed_s", "exposed", Show::seconds, "s"),
                          spare("bubble_s", "bubble", Show::seconds, "s"),
                          spare("host_s", "host", Show::seconds, "s")};
  columns.insert(columns.end(), std::begin(parts), std::end(parts));
  return columns;
}

const TypedColumns<PlanTerm>& term_columns() {
  static const TypedColumns<PlanTerm> columns = {{"term", "term", &PlanTerm::term},
                                                 {"seconds", "time", &PlanTerm::seconds, Show::seconds},
                                                 {"share", "share", &PlanTerm::share, Show::percent},
                                                 {"how", "how", &PlanTerm::how}};
  return columns;
}

const TypedColumns<MemoryTerm>& memory_term_columns() {
  static const TypedColumns<MemoryTerm> columns = {
      {"term", "term", &MemoryTerm::term},
      {"bytes", "memory", &MemoryTerm::bytes, Show::bytes, "byte"},
      {"share", "share", &MemoryTerm::share, Show::percent},
      {"how", "how", &MemoryTerm::how}};
  return columns;
}

const TypedColumns<PlanAgainst>& against_columns() {
  static const TypedColumns<PlanAgainst> columns = {{"run", "run", &PlanAgainst::run, Seen::grouped},
                                                    {"what", "what", &PlanAgainst::what},
                                                    {"unit", "unit", &PlanAgainst::unit},
                                                    {"measured", "measured", &PlanAgainst::measured},
                                                    {"planned", "planned", &PlanAgainst::planned},
                                                    {"error", "error", &PlanAgainst::error, Show::percent}};
  return columns;
}

std::vector<record::Cell> cells_of_rows(std::string_view series, std::span<const Row> rows) {
  std::vector<record::Cell> cells;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const auto& [key, value] : rows[i].cells()) {
      if (std::holds_alternative<std::monostate>(value)) continue;
      record::Cell cell{.series = std::string(series), .row = static_cast<std::int64_t>(i), .col = key};
      if (const auto* text = std::get_if<std::string>(&value)) {
        cell.text = *text;
      } else {
        cell.value = rows[i].number(key);
      }
      cells.push_back(std::move(cell));
    }
  }
  return cells;
}

std::vector<Row> rows_of_cells(std::string_view series, std::span<const record::Cell> cells) {
  std::map<std::int64_t, Row> rows;
  for (const record::Cell& cell : cells)
    if (cell.series == series) rows[cell.row].set(cell.col, value_of(cell));
  std::vector<Row> all;
  for (auto& [number, row] : rows) all.push_back(std::move(row));
  return all;
}

}  // namespace rooflm::report
