// Answers of the studies that are made of cells.
#include "report/findings/answers_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "core/units.h"
#include "report/tables/plan_rows.h"
#include "report/tables/table.h"

namespace rooflm::report {
namespace {

/// The rows of one series of all records, in their order.
std::vector<Row> rows_of(const RecordSet& set, std::string_view series) {
  std::vector<Row> all;
  for (const RecordFile& file : set.files)
    std::ranges::move(rows_of_cells(series, file.cells), std::back_inserter(all));
  return all;
}

/// LayerNorm whose sums are of the format itself: where it overflows, and how far off it is.
std::string norms_sentence(const RecordSet& set) {
  std::string text;
  for (const Row& row : rows_of(set, "norms")) {
    const std::string format = row.text("format");
    if (row.number("overflowed") > 0) {
      add_sentence(text, fmt::format("LayerNorm with sums in {} overflows in {:.0f}% of the rows if inputs "
                                     "have a standard deviation of {:.0f}, with sums in fp32 in {:.0f}%.",
                                     format, 100 * row.number("overflowed") / row.number("outputs"),
                                     row.number("input_std"),
                                     100 * row.number("overflowed_fp32_sums") / row.number("outputs")));
    } else if (row.number("input_std") == 1) {
      add_sentence(
          text,
          fmt::format("At a standard deviation of 1, its error is {:.2g} in {} and {:.2g} with sums in fp32.",
                      row.number("error_rms"), format, row.number("error_rms_fp32_sums")));
    }
  }
  return text;
}

/// Norms by the device's own kernels: the errors of each format at a deviation of 1, and what overflowed.
std::string device_norms_sentence(const RecordSet& set) {
  std::string errors;
  std::string lost;
  std::string device;
  for (const Row& row : rows_of(set, "norms_device")) {
    if (row.text("norm") != "layernorm") continue;
    device = row.text("device");
    if (row.number("input_std") == 1 && row.number("input_mean") == 0)
      errors += fmt::format("{}{:.2g} in {}", errors.empty() ? "" : ", ", row.number("error_rms"),
                            row.text("format"));
    if (row.number("overflowed") > 0 && lost.empty())
      lost = fmt::format(" In {} it overflows at a standard deviation of {:.0f}.", row.text("format"),
                         row.number("input_std"));
  }
  if (errors.empty()) return "";
  if (lost.empty()) lost = " No output of finite inputs overflows.";
  return fmt::format("The LayerNorm error of the kernels of {} is {}.{}", device, errors, lost);
}

/// What a training run in fp8 lost, and in which operands most.
std::string fp8_sentence(const RecordSet& set) {
  const std::vector<Row> rows = rows_of(set, "fp8");
  if (rows.empty()) return "";
  const auto most = [&](const char* column) -> const Row& {
    return *std::ranges::max_element(rows, {}, [&](const Row& row) { return row.number(column); });
  };
  const Row& underflow = most("underflowed");
  const Row& saturation = most("saturated");
  return fmt::format(
      "Training in fp8, at most {:.2g}% of an operand's elements underflowed ({} of {}) and {:.2g}% "
      "saturated ({} of "
      "{}).",
      100 * underflow.number("underflowed"), underflow.text("operand"), underflow.text("product"),
      100 * saturation.number("saturated"), saturation.text("operand"), saturation.text("product"));
}

}  // namespace

void add_sentence(std::string& text, const std::string& sentence) {
  if (!sentence.empty()) text += (text.empty() ? "" : " ") + sentence;
}

std::string answer_formats(const RecordSet& set) {
  std::map<std::string, Row> rows;
  for (Row& row : rows_of(set, "formats")) rows[row.text("format")] = row;
  if (!rows.contains("fp16") || !rows.contains("bf16")) return "";
  std::string text = fmt::format(
      "bf16 holds numbers up to {:.2g}, as fp32 does, with a spacing of {:.2g} at 1; fp16 ends at {:.0f} and "
      "underflows "
      "below {:.1g}, with a spacing of {:.2g}.",
      rows["bf16"].number("largest"), rows["bf16"].number("spacing_at_1"), rows["fp16"].number("largest"),
      rows["fp16"].number("underflow_below"), rows["fp16"].number("spacing_at_1"));
  add_sentence(text, norms_sentence(set));
  add_sentence(text, device_norms_sentence(set));
  add_sentence(text, fp8_sentence(set));
  return text;
}

std::string answer_gemm(const RecordSet& set) {
  std::map<std::string, std::pair<double, std::string>>
      worst;  // strategy -> most times as long as one big matmul
  for (const Row& row : rows_of(set, "gemm")) {
    const double times = row.number("times_big");
    auto& [most, where] = worst[row.text("strategy")];
    if (row.text("strategy") == "big" || times <= most) continue;
    most = times;
    where = fmt::format("{:.0f} of n={:.0f}", row.number("count"), row.number("n"));
  }
  std::string text;
  for (const auto& [strategy, found] : worst) {
    if (found.second.empty()) continue;
    add_sentence(text, fmt::format("{} takes up to {:.2f} times as long as one big matmul ({}).", strategy,
                                   found.first, found.second));
  }
  return text;
}

std::string answer_attention_sweep(const RecordSet& set) {
  struct Pair {
    double batched_ms = 0, flash_ms = 0, batched_bytes = 0, flash_bytes = 0;
  };
  std::map<std::pair<double, double>, Pair, std::greater<>> pairs;  // seq, head_dim: the largest first
  for (const Row& row : rows_of(set, "attention")) {
    Pair& pair = pairs[{row.number("seq"), row.number("head_dim")}];
    const double ms = row.number("forward_ms") + row.number("backward_ms");
    if (row.text("attention") == "batched")
      pair.batched_ms = ms, pair.batched_bytes = row.number("peak_memory");
    if (row.text("attention") == "flash") pair.flash_ms = ms, pair.flash_bytes = row.number("peak_memory");
  }
  for (const auto& [sizes, times] : pairs) {
    if (times.flash_bytes <= 0 || times.batched_bytes <= 0) continue;
    const std::string memory =
        fmt::format("{} of memory instead of {}", core::format_bytes(times.flash_bytes),
                    core::format_bytes(times.batched_bytes));
    if (times.batched_ms <= 0 || times.flash_ms <= 0)
      return fmt::format("At T={:.0f}, D={:.0f}, flash needs {}.", sizes.first, sizes.second, memory);
    return fmt::format(
        "At T={:.0f}, D={:.0f}, forward and backward take {:.3g} ms with flash and {:.3g} ms with batched; "
        "flash needs {}.",
        sizes.first, sizes.second, times.flash_ms, times.batched_ms, memory);
  }
  return "";
}

std::string answer_solved(const RecordSet& set) {
  std::string text;
  for (const Row& row : rows_of(set, "largest")) {
    add_sentence(text, fmt::format("With {} of memory, the largest {} step that fits has {} parameters "
                                   "({:.0f} layers of width {:.0f}, B={:.0f} T={:.0f}).",
                                   core::format_bytes(row.number("limit")), row.text("dtype"),
                                   core::format_si(row.number("params")), row.number("layers"),
                                   row.number("d_model"), row.number("batch"), row.number("seq")));
  }
  return text;
}

}  // namespace rooflm::report
