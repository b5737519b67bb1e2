// The tables of micro-benchmarks, from the cells of a record.
#include "report/micro_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/view.h"

namespace rooflm::report {
namespace {

using CellsOfRow = std::map<std::string, const record::Cell*, std::less<>>;

enum class As : std::uint8_t { text, integer, number, flag };

/// A key of a row, and the cell that it shows.
struct Key {
  const char* key;
  const char* col;
  As as = As::number;
};

constexpr std::array kGemmKeys = {Key{"device", "device", As::text},
                                  Key{"shape", "shape", As::text},
                                  Key{"dtype", "dtype", As::text},
                                  Key{"count", "count", As::integer},
                                  Key{"m", "m", As::integer},
                                  Key{"n", "n", As::integer},
                                  Key{"k", "k", As::integer},
                                  Key{"trans_b", "trans_b", As::flag},
                                  Key{"strategy", "strategy", As::text},
                                  Key{"flop", "flop"},
                                  Key{"needed_bytes", "needed", As::integer},
                                  Key{"free_bytes", "free", As::integer},
                                  Key{"status", "status", As::text}};
constexpr std::array kGemmTimes = {Key{"wall_ms_median", "wall_ms"},
                                   Key{"wall_ms_mean", "wall_ms_mean"},
                                   Key{"wall_ms_std", "wall_ms_std"},
                                   Key{"wall_flop_per_s", "rate"},
                                   Key{"device_ms_median", "device_ms"},
                                   Key{"device_ms_mean", "device_ms_mean"},
                                   Key{"device_ms_std", "device_ms_std"},
                                   Key{"device_flop_per_s", "device_rate"},
                                   Key{"device_bytes_per_s", "device_bandwidth"},
                                   Key{"samples", "samples", As::integer}};
/// Where the matmuls ran on a GPU that was traced.
constexpr std::array kGemmLaunch = {Key{"kernels", "kernels", As::integer},
                                    Key{"grid", "grid", As::text},
                                    Key{"block", "block", As::text},
                                    Key{"blocks", "blocks", As::integer},
                                    Key{"occupancy", "occupancy"},
                                    Key{"waves", "waves"},
                                    Key{"tail", "tail"},
                                    Key{"kernel", "kernel", As::text}};

constexpr std::array kAttentionKeys = {
    Key{"device", "device", As::text},        Key{"engine", "engine", As::text},
    Key{"attention", "attention", As::text},  Key{"dtype", "dtype", As::text},
    Key{"batch", "batch", As::integer},       Key{"heads", "heads", As::integer},
    Key{"kv_heads", "kv_heads", As::integer}, Key{"head_dim", "head_dim", As::integer},
    Key{"seq", "seq", As::integer},           Key{"deterministic", "deterministic", As::flag},
    Key{"free_bytes", "free", As::integer},   Key{"needed_bytes", "needed_memory", As::integer},
    Key{"status", "status", As::text}};
constexpr std::array kAttentionTimes = {Key{"forward_ms_median", "forward_ms"},
                                        Key{"forward_ms_mean", "forward_ms_mean"},
                                        Key{"forward_ms_std", "forward_ms_std"},
                                        Key{"forward_flop_per_s", "forward_rate"},
                                        Key{"backward_ms_median", "backward_ms"},
                                        Key{"backward_ms_mean", "backward_ms_mean"},
                                        Key{"backward_ms_std", "backward_ms_std"},
                                        Key{"backward_flop_per_s", "backward_rate"},
                                        Key{"samples", "samples", As::integer},
                                        Key{"peak_bytes", "peak_memory", As::integer},
                                        Key{"workspace_bytes", "workspace_bytes", As::integer},
                                        Key{"attention_forward", "forward_by", As::text},
                                        Key{"attention_backward", "backward_by", As::text}};

constexpr std::array kCommKeys = {Key{"device", "device", As::text},  Key{"carrier", "carrier", As::text},
                                  Key{"ranks", "ranks", As::integer}, Key{"hosts", "hosts", As::integer},
                                  Key{"op", "op", As::text},          Key{"size", "size", As::integer},
                                  Key{"count", "count", As::integer}, Key{"type", "type", As::text},
                                  Key{"redop", "redop", As::text},    Key{"place", "place", As::text},
                                  Key{"status", "status", As::text}};
constexpr std::array kCommTimes = {Key{"time_us", "time_us"},
                                   Key{"time_us_low", "time_us_low"},
                                   Key{"time_us_high", "time_us_high"},
                                   Key{"algbw", "algbw"},
                                   Key{"busbw", "busbw"},
                                   Key{"wrong", "wrong", As::integer},
                                   Key{"samples", "samples", As::integer},
                                   Key{"calls", "calls", As::integer}};

Cell value_of(const record::Cell* cell, As as) {
  if (cell == nullptr) return {};
  if (as == As::text) return cell->text;
  if (!cell->value) return {};
  switch (as) {
    case As::integer:
      return whole(cell->value);
    case As::flag:
      return *cell->value != 0;
    default:
      return *cell->value;
  }
}

void set_keys(Row& row, const CellsOfRow& cells, std::span<const Key> keys) {
  for (const Key& key : keys) {
    const auto found = cells.find(key.col);
    row.set(key.key, value_of(found == cells.end() ? nullptr : found->second, key.as));
  }
}

/// Rows of a series; `times` are set where it was measured.
std::vector<Row> rows_of(std::span<const record::Cell> cells, std::string_view series,
                         std::span<const Key> keys, std::span<const Key> times) {
  std::map<std::int64_t, CellsOfRow> by_row;
  for (const record::Cell& cell : cells) {
    if (cell.series == series) by_row[cell.row][cell.col] = &cell;
  }
  std::vector<Row> rows;
  for (const auto& [number, of_row] : by_row) {
    Row& row = rows.emplace_back();
    set_keys(row, of_row, keys);
    if (row.text("status") == "success") set_keys(row, of_row, times);
  }
  return rows;
}

}  // namespace

Table gemm_table(std::span<const record::Cell> cells) {
  const bool has_launches = std::ranges::any_of(
      cells, [](const record::Cell& cell) { return cell.series == "gemm" && cell.col == "kernels"; });
  std::vector<Key> measured(kGemmTimes.begin(), kGemmTimes.end());
  if (has_launches) measured.insert(measured.end(), kGemmLaunch.begin(), kGemmLaunch.end());
  Table table{
      .columns = {{"device", "device"},
                  {"shape", "shape"},
                  {"dtype", "dtype"},
                  {"count", "count"},
                  {"m", "m"},
                  {"n", "n"},
                  {"k", "k"},
                  {"strategy", "strategy"},
                  {"status", "status"},
                  {"wall_ms_median", "wall_ms"},
                  {"device_ms_median", "device_ms"},
                  {"wall_flop_per_s", "flop/s", Show::si},
                  {"device_flop_per_s", "device_flop/s", Show::si},
                  {"device_bytes_per_s", "device_byte/s", Show::si},
                  {"needed_bytes", "memory", Show::bytes}},
      .rows = rows_of(cells, "gemm", kGemmKeys, measured),
      .notes = {"", "Times: medians; wall: from the submission of all matmuls until the device is done.",
                "big: one matmul with count x m rows; looped: one call per matmul; batched: one call, "
                "operands at constant strides.",
                "byte/s: operands and results, each moved once. The first run is discarded."}};
  if (!has_launches) return table;
  for (Column column : {Column{"kernels", "kernels"}, Column{"grid", "grid"}, Column{"block", "block"},
                        Column{"waves", "waves", Show::fixed1}, Column{"tail", "tail", Show::percent},
                        Column{"occupancy", "occupancy", Show::percent}, Column{"kernel", "kernel"}}) {
    table.columns.push_back(std::move(column));
  }
  table.notes.emplace_back(
      "kernels: launched for all matmuls; grid, block, waves and tail: of the kernel that took the most "
      "time. waves: blocks / blocks that the device holds at once; tail: time in which the last wave leaves "
      "multiprocessors empty, if all blocks take equally long.");
  return table;
}

namespace {

/// Of the times and the shape, for each pass that was timed.
void set_attention_rates(Row& row) {
  constexpr double kSecondsPerMs = 1e-3;
  const double product = row.number("batch") * row.number("heads") * row.number("seq") * row.number("seq") *
                         row.number("head_dim");  // half of one: the diagonal parts it
  for (const auto& [pass, products] : {std::pair{"forward", 2.0}, std::pair{"backward", 4.0}}) {
    const double ms = row.number(fmt::format("{}_ms_median", pass));
    if (ms > 0) row.set(fmt::format("{}_flop_per_s", pass), products * product / (ms * kSecondsPerMs));
  }
}

}  // namespace

Table attention_table(std::span<const record::Cell> cells) {
  Table table{.columns = {{"device", "device"},
                          {"engine", "engine"},
                          {"attention", "attention"},
                          {"dtype", "dtype"},
                          {"batch", "B"},
                          {"heads", "H"},
                          {"kv_heads", "K"},
                          {"head_dim", "D"},
                          {"seq", "T"},
                          {"status", "status"},
                          {"forward_ms_median", "forward_ms"},
                          {"backward_ms_median", "backward_ms"},
                          {"forward_flop_per_s", "forward_flop/s", Show::si},
                          {"backward_flop_per_s", "backward_flop/s", Show::si},
                          {"needed_bytes", "memory", Show::bytes},
                          {"workspace_bytes", "workspace", Show::bytes},
                          {"free_bytes", "free", Show::bytes}},
              .rows = rows_of(cells, "attention", kAttentionKeys, kAttentionTimes),
              .notes = {"", "Times: medians of device time; the first run is discarded.",
                        "flop/s: 2 B H T T D for the forward pass, 4 B H T T D for the backward pass: the "
                        "half of the matmuls below the diagonal, without recomputed scores (papers that "
                        "count those show 1.25 times the backward rate).",
                        "memory: operands, results and intermediate tensors, as planned; workspace: further "
                        "memory of the kernels."}};
  for (Row& row : table.rows) set_attention_rates(row);
  const bool has_kernels =
      std::ranges::any_of(table.rows, [](const Row& row) { return !row.text("attention_forward").empty(); });
  if (has_kernels) {
    table.columns.push_back({"attention_forward", "forward_by"});
    table.columns.push_back({"attention_backward", "backward_by"});
  }
  return table;
}

Table comm_table(std::span<const record::Cell> cells) {
  return {
      .columns = {{"carrier", "carrier"},
                  {"ranks", "ranks"},
                  {"op", "op"},
                  {"size", "size"},
                  {"count", "count"},
                  {"type", "type"},
                  {"redop", "redop"},
                  {"place", "place"},
                  {"status", "status"},
                  {"time_us", "time_us", Show::brief},
                  {"time_us_low", "from", Show::brief},
                  {"time_us_high", "to", Show::brief},
                  {"algbw", "algbw_B/s", Show::si},
                  {"busbw", "busbw_B/s", Show::si},
                  {"wrong", "#wrong"}},
      .rows = rows_of(cells, "comm", kCommKeys, kCommTimes),
      .notes = {"", "time_us: time of the last rank to finish; median, interval (95 % from 6 samples on).",
                "size: bytes of the whole tensor; count: elements of it, or of one rank's part.",
                "algbw: size / time; busbw: what each rank's link carries (nccl-tests)."}};
}

std::vector<record::Cell> example_cells(std::string_view series) {
  std::vector<record::Cell> cells;
  for (const char* col : {"status", "kernels", "forward_by"})
    cells.push_back({.series = std::string(series), .row = 0, .col = col, .value = {}, .text = "success"});
  return cells;
}

bool is_launch(std::string_view column) {
  return std::ranges::find(kGemmLaunch, column, [](const Key& key) { return std::string_view(key.col); }) !=
         kGemmLaunch.end();
}

bool is_detail(std::string_view column) {
  static constexpr std::array kDetails = {std::string_view("shape"),
                                          std::string_view("trans_b"),
                                          std::string_view("free"),
                                          std::string_view("deterministic"),
                                          std::string_view("samples"),
                                          std::string_view("calls"),
                                          std::string_view("device_rate"),
                                          std::string_view("workspace_bytes"),
                                          std::string_view("device_bandwidth"),
                                          std::string_view("needed_memory")};
  return column.ends_with("_ms_mean") || column.ends_with("_ms_std") ||
         std::ranges::find(kDetails, column) != kDetails.end();
}

}  // namespace rooflm::report
