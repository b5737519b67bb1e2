// The tables of micro-benchmarks, from the cells of a record.
#include "report/tables/micro_rows.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/tables/typed_columns.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

constexpr const char* kSuccess = "success";
constexpr auto kLaunch = std::to_array<std::string_view>(
    {"kernels", "grid", "block", "blocks", "occupancy", "waves", "tail", "kernel"});

/// A function of a row: what its cell holds.
auto text_in(const char* col) {
  return [col](const MicroRow& row) { return row.text(col); };
}
auto number_in(const char* col) {
  return [col](const MicroRow& row) { return row.number(col); };
}
auto count_in(const char* col) {
  return [col](const MicroRow& row) { return whole(row.number(col)); };
}
auto flag_in(const char* col) {
  return [col](const MicroRow& row) {
    const auto value = row.number(col);
    return value ? std::optional(*value != 0) : std::nullopt;
  };
}
/// The same of what only rows have that were measured.
template <class Value>
auto if_measured(Value value) {
  return [value](const MicroRow& row) {
    return row.text("status") == kSuccess ? cell_from(value(row)) : Cell();
  };
}
auto timed(const char* col) { return if_measured(number_in(col)); }

/// Of the time and the shape; without a time what was recorded.
auto attention_rate(const char* pass, double products) {
  return if_measured(
      [time = std::string(pass) + "_ms", rate = std::string(pass) + "_rate", products](const MicroRow& row) {
        constexpr double kMsPerSecond = 1e3;
        double product = products;  // half of each: the diagonal parts it
        for (const char* side : {"batch", "heads", "seq", "seq", "head_dim"})
          product *= row.number(side).value_or(0);
        // Of T^2 scores a window leaves 2 W T - W^2, both halves counted.
        const double seen = row.number("window").value_or(0) / row.number("seq").value_or(1);
        if (seen > 0 && seen < 1) product *= seen * (2 - seen);
        const auto ms = row.number(time);
        return ms.value_or(0) > 0 ? std::optional(product * kMsPerSecond / *ms) : row.number(rate);
      });
}

/// The rows of a series.
std::vector<MicroRow> rows_of(std::span<const record::Cell> cells, std::string_view series) {
  std::map<std::int64_t, MicroRow> by_row;
  for (const record::Cell& cell : cells) {
    if (cell.series == series) by_row[cell.row].cells[cell.col] = &cell;
  }
  std::vector<MicroRow> rows;
  for (auto& [number, row] : by_row) rows.push_back(std::move(row));
  return rows;
}

}  // namespace

std::optional<std::string> MicroRow::text(std::string_view col) const {
  const auto found = cells.find(col);
  return found == cells.end() ? std::nullopt : std::optional(found->second->text);
}

std::optional<double> MicroRow::number(std::string_view col) const {
  const auto found = cells.find(col);
  return found == cells.end() ? std::nullopt : found->second->value;
}

const TypedColumns<MicroRow>& micro_gemm_columns() {
  constexpr Seen kKnown = Seen::when_known;
  static const TypedColumns<MicroRow> columns = {
      {"device", "device", text_in("device")},
      {"shape", "shape", text_in("shape")},
      {"dtype", "dtype", text_in("dtype")},
      {"count", "count", count_in("count")},
      {"m", "m", count_in("m")},
      {"n", "n", count_in("n")},
      {"k", "k", count_in("k")},
      {"trans_b", flag_in("trans_b")},
      {"strategy", "strategy", text_in("strategy")},
      {"flop", number_in("flop")},
      {"free_bytes", count_in("free")},
      {"status", "status", text_in("status")},
      {"wall_ms_median", "wall_ms", timed("wall_ms")},
      {"wall_ms_mean", timed("wall_ms_mean")},
      {"wall_ms_std", timed("wall_ms_std")},
      {"device_ms_median", "device_ms", timed("device_ms")},
      {"device_ms_mean", timed("device_ms_mean")},
      {"device_ms_std", timed("device_ms_std")},
      {"wall_flop_per_s", "flop/s", timed("rate"), Show::si},
      {"device_flop_per_s", "device_flop/s", timed("device_rate"), Show::si},
      {"device_bytes_per_s", "device_byte/s", timed("device_bandwidth"), Show::si},
      {"needed_bytes", "memory", count_in("needed"), Show::bytes},
      {"samples", if_measured(count_in("samples"))},
      {"kernels", "kernels", if_measured(count_in("kernels")), kKnown},
      {"grid", "grid", if_measured(text_in("grid")), kKnown},
      {"block", "block", if_measured(text_in("block")), kKnown},
      {"blocks", if_measured(count_in("blocks"))},
      {"waves", "waves", timed("waves"), kKnown, Show::fixed1},
      {"tail", "tail", timed("tail"), kKnown, Show::percent},
      {"occupancy", "occupancy", timed("occupancy"), kKnown, Show::percent},
      {"kernel", "kernel", if_measured(text_in("kernel")), kKnown}};
  return columns;
}

Table gemm_table(std::span<const record::Cell> cells) {
  Table table = micro_gemm_columns().table(rows_of(cells, "gemm"));
  table.notes = {"", "Times: medians; wall: from the submission of all matmuls until the device is done.",
                 "big: one matmul with count x m rows; looped: one call per matmul; batched: one call, "
                 "operands at constant strides.",
                 "byte/s: operands and results, each moved once. The first run is discarded."};
  if (std::ranges::find(table.columns, "kernels", &Column::key) == table.columns.end()) return table;
  table.notes.emplace_back(
      "kernels: launched for all matmuls; grid, block, waves and tail: of the kernel that took the most "
      "time. waves: blocks / blocks that the device holds at once; tail: time in which the last wave leaves "
      "multiprocessors empty, if all blocks take equally long.");
  return table;
}

const TypedColumns<MicroRow>& micro_attention_columns() {
  static const TypedColumns<MicroRow> columns = {
      {"device", "device", text_in("device")},
      {"engine", "engine", text_in("engine")},
      {"attention", "attention", text_in("attention")},
      {"dtype", "dtype", text_in("dtype")},
      {"batch", "B", count_in("batch")},
      {"heads", "H", count_in("heads")},
      {"kv_heads", "K", count_in("kv_heads")},
      {"head_dim", "D", count_in("head_dim")},
      {"seq", "T", count_in("seq")},
      {"window", "W", count_in("window"), Seen::when_known},
      {"deterministic", flag_in("deterministic")},
      {"status", "status", text_in("status")},
      {"forward_ms_median", "forward_ms", timed("forward_ms")},
      {"forward_ms_mean", timed("forward_ms_mean")},
      {"forward_ms_std", timed("forward_ms_std")},
      {"backward_ms_median", "backward_ms", timed("backward_ms")},
      {"backward_ms_mean", timed("backward_ms_mean")},
      {"backward_ms_std", timed("backward_ms_std")},
      {"forward_flop_per_s", "forward_flop/s", attention_rate("forward", 2), Show::si},
      {"backward_flop_per_s", "backward_flop/s", attention_rate("backward", 4), Show::si},
      {"samples", if_measured(count_in("samples"))},
      {"peak_bytes", if_measured(count_in("peak_memory"))},
      {"needed_bytes", "memory", count_in("needed_memory"), Show::bytes},
      {"workspace_bytes", "workspace", if_measured(count_in("workspace_bytes")), Show::bytes},
      {"free_bytes", "free", count_in("free"), Show::bytes},
      {"attention_forward", "forward_by", if_measured(text_in("forward_by")), Seen::when_known},
      {"attention_backward", "backward_by", if_measured(text_in("backward_by")), Seen::when_known}};
  return columns;
}

Table attention_table(std::span<const record::Cell> cells) {
  Table table = micro_attention_columns().table(rows_of(cells, "attention"));
  table.notes = {"", "Times: medians of device time; the first run is discarded.",
                 "flop/s: 2 B H T T D for the forward pass, 4 B H T T D for the backward pass: the "
                 "half of the matmuls below the diagonal, without recomputed scores (papers that "
                 "count those show 1.25 times the backward rate). A window W leaves 2 W / T - (W / T)^2 "
                 "of it.",
                 "memory: operands, results and intermediate tensors, as planned; workspace: further "
                 "memory of the kernels."};
  return table;
}

const TypedColumns<MicroRow>& micro_comm_columns() {
  static const TypedColumns<MicroRow> columns = {{"device", text_in("device")},
                                                 {"carrier", "carrier", text_in("carrier")},
                                                 {"ranks", "ranks", count_in("ranks")},
                                                 {"hosts", count_in("hosts")},
                                                 {"op", "op", text_in("op")},
                                                 {"size", "size", count_in("size")},
                                                 {"count", "count", count_in("count")},
                                                 {"type", "type", text_in("type")},
                                                 {"redop", "redop", text_in("redop")},
                                                 {"place", "place", text_in("place")},
                                                 {"status", "status", text_in("status")},
                                                 {"time_us", "time_us", timed("time_us"), Show::brief},
                                                 {"time_us_low", "from", timed("time_us_low"), Show::brief},
                                                 {"time_us_high", "to", timed("time_us_high"), Show::brief},
                                                 {"algbw", "algbw_B/s", timed("algbw"), Show::si},
                                                 {"busbw", "busbw_B/s", timed("busbw"), Show::si},
                                                 {"wrong", "#wrong", if_measured(count_in("wrong"))},
                                                 {"samples", if_measured(count_in("samples"))},
                                                 {"calls", if_measured(count_in("calls"))}};
  return columns;
}

Table comm_table(std::span<const record::Cell> cells) {
  Table table = micro_comm_columns().table(rows_of(cells, "comm"));
  table.notes = {"", "time_us: time of the last rank to finish; median, interval (95 % from 6 samples on).",
                 "size: bytes of the whole tensor; count: elements of it, or of one rank's part.",
                 "algbw: size / time; busbw: what each rank's link carries (nccl-tests)."};
  return table;
}

bool is_launch(std::string_view column) { return std::ranges::find(kLaunch, column) != kLaunch.end(); }

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
