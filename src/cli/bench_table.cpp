// How the rows of a benchmark are shown.
#include "cli/bench_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/statistics.h"
#include "core/units.h"
#include "measure/machine_load.h"

namespace rooflm::cli {
namespace {

/// What two rows must have in common to be compared.
constexpr std::array kConfiguration = {"model", "arch",    "device", "dtype",      "batch",    "seq",
                                       "vocab", "layers",  "heads",  "kv_heads",   "d_model",  "d_ff",
                                       "seed",  "threads", "status", "grad_accum", "recompute"};

bool is_same_configuration(const Row& a, const Row& b) {
  return std::all_of(kConfiguration.begin(), kConfiguration.end(),
                     [&](const char* key) { return *a.find(key) == *b.find(key); });
}

const Row* find_eager(const std::vector<Row>& rows, const Row& fused) {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    if (row.text("engine") != "eager" || !is_same_configuration(row, fused)) continue;
    if (row.text("attention") == fused.text("attention")) return &row;
    if (best == nullptr || row.text("attention") == "batched") best = &row;
  }
  return best;
}

bool any_row(const std::vector<Row>& rows, const char* key, std::string_view usual) {
  return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
    const Cell* cell = row.find(key);
    return cell != nullptr && format_cell(*cell, Show::plain) != usual;
  });
}

std::vector<Column> columns_for(const std::vector<Row>& rows) {
  std::vector<Column> columns = {
      {"model", "size"},        {"arch", "kind"},       {"d_model", "d_model"}, {"d_ff", "d_ff"},
      {"layers", "num_layers"}, {"heads", "num_heads"}, {"batch", "batch"},     {"seq", "seq"}};
  if (any_row(rows, "recompute", "none")) columns.push_back({"recompute", "recompute"});
  if (any_row(rows, "grad_accum", "1")) columns.push_back({"grad_accum", "grad_accum"});
  columns.insert(columns.end(), {{"dtype", "dtype"},
                                 {"engine", "engine"},
                                 {"attention", "attention"},
                                 {"status", "status"},
                                 {"forward_ms_mean", "forward_mean", Show::fixed1},
                                 {"forward_ms_std", "forward_std", Show::fixed1},
                                 {"backward_ms_mean", "backward_mean", Show::fixed1},
                                 {"backward_ms_std", "backward_std", Show::fixed1},
                                 {"optimizer_ms_mean", "optimizer_mean", Show::fixed1},
                                 {"optimizer_ms_std", "optimizer_std", Show::fixed1},
                                 {"step_ms_mean", "total", Show::fixed1},
                                 {"tokens_per_s", "tokens/s", Show::fixed1}});
  if (any_row(rows, "share_of_peak", "-")) {
    columns.push_back({"share_of_peak", "of_peak", Show::percent});
    columns.push_back({"mfu", "MFU", Show::percent});
  }
  columns.push_back({"needed_bytes", "memory", Show::bytes});
  if (any_row(rows, "free_bytes", "-")) columns.push_back({"free_bytes", "free", Show::bytes});
  if (std::any_of(rows.begin(), rows.end(),
                  [](const Row& row) { return row.number("speedup_over_eager") > 0; }))
    columns.push_back({"speedup_over_eager", "speed-up", Show::fixed2});
  return columns;
}

std::string speedup_line(const Row& fused, const Row& eager) {
  return fmt::format(
      "{} B={} T={} {}: fused ({}) is {:.2f} times as fast as eager ({}): {:.1f} ms and {:.1f} ms a step",
      fused.text("model"), fused.number("batch"), fused.number("seq"), fused.text("dtype"),
      fused.text("attention"), fused.number("speedup_over_eager"), eager.text("attention"),
      fused.number("step_ms_median"), eager.number("step_ms_median"));
}

/// What the reader of a row should know of how its times came about.
void add_warnings(Table& table) {
  for (const Row& row : table.rows) {
    if (row.text("stop_reason").empty()) continue;
    const std::string label = fmt::format("{} B={} T={} {} {}", row.text("model"), row.number("batch"),
                                          row.number("seq"), row.text("dtype"), row.text("engine"));
    if (row.text("stop_reason") != fmt::format("{:.0f} samples", row.number("steps"))) {
      table.notes.push_back(fmt::format("{}: {:.0f} steps, stopped at: {}", label, row.number("steps"),
                                        row.text("stop_reason")));
    }
    if (row.number("drift_p") < core::Drift::kAlpha) {
      table.notes.push_back(fmt::format("{}: {}", label, row.text("drift")));
    }
    if (row.number("others_share") > measure::kBusyShare) {
      table.notes.push_back(
          fmt::format("{}: busy machine: {}", label, measure::load_sentence(row.number("others_share"))));
    }
    if (row.number("outliers") > 0) {
      table.notes.push_back(
          fmt::format("{}: {} of {} steps are outliers (further than 5 normalised MAD from the median)",
                      label, row.number("outliers"), row.number("steps")));
    }
  }
}

void add_notes(Table& table, const Ceilings& ceilings) {
  const Row& row = table.rows.front();
  table.notes.emplace_back();
  if (any_row(table.rows, "step_ms_mean", "-")) {
    table.notes.push_back(
        fmt::format("Times: wall, in ms, mean and standard deviation of {:.0f} steps after {:.0f} discarded, "
                    "{:.0f} threads, no observer; total is the whole step.",
                    row.number("steps"), row.number("warmup"), row.number("threads")));
  }
  add_warnings(table);
  table.notes.emplace_back(
      "memory: weights, optimizer state, inputs and what the step needs besides, as planned.");
  if (any_row(table.rows, "free_bytes", "-")) {
    table.notes.emplace_back("free: memory of the device that was free before a row that did not fit.");
  }
  if (!ceilings.measured().empty()) {
    table.notes.emplace_back(
        "of_peak = matmul FLOP of the program / median step time / peak. The peak is the sustained rate of "
        "square "
        "matmuls measured here (rooflm peaks also has the instruction peak, which is higher). Causal "
        "attention "
        "counts in full; flash skips the masked half, so long sequences may pass 100%.");
    table.notes.emplace_back(
        "MFU = (6 N + 12 L C T) tokens/s / peak (PaLM, appendix B; N: parameters without input embeddings "
        "unless tied).");
  }
  for (const auto& [key, peak] : ceilings.measured()) {
    table.notes.push_back(fmt::format("peak of {}, measured here in this run: {}",
                                      key.substr(0, key.find(' ')), describe(peak)));
  }
  for (const Row& fused : table.rows) {
    if (fused.number("speedup_over_eager") > 0)
      table.notes.push_back(speedup_line(fused, *find_eager(table.rows, fused)));
  }
}

}  // namespace

void set_speedups(std::vector<Row>& rows) {
  for (Row& row : rows) {
    row.set("speedup_over_eager", {});
    if (row.text("engine") != "fused" || row.number("step_ms_median") <= 0) continue;
    const Row* eager = find_eager(rows, row);
    if (eager != nullptr) {
      row.set("speedup_over_eager", eager->number("step_ms_median") / row.number("step_ms_median"));
    }
  }
}

Table bench_table(std::vector<Row> rows, const Ceilings& ceilings) {
  set_speedups(rows);
  Table table{.columns = columns_for(rows), .rows = {}, .notes = {}};
  table.rows = std::move(rows);
  if (!table.rows.empty()) add_notes(table, ceilings);
  return table;
}

}  // namespace rooflm::cli
