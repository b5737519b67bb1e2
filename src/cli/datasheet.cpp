// Advertised rates of a device of the catalog, beside those that GEMMs sustain.
#include "cli/datasheet.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "core/ratio.h"
#include "devices/advertised.h"
#include "perfmodel/op_tables.h"
#include "report/tables/typed_columns.h"

namespace rooflm::cli {
namespace {

constexpr std::array<std::string_view, 4> kSparse = {"tf32", "bf16", "fp16", "fp8"};

/// Of an element in memory: tf32 and bf16x6 are ways to multiply fp32.
double stored_bytes(std::string_view dtype) {
  if (dtype == "fp64") return 8;
  if (dtype == "bf16" || dtype == "fp16") return 2;
  return dtype == "fp8" || dtype == "int8" ? 1 : 4;
}

/// A rate of the datasheet, and what GEMMs sustain of it where somebody measured that.
struct DatasheetRate {
  std::string device{}, dtype{};
  double dense = 0, sparsity = 1;  ///< sparsity 1: has none
  double byte_per_s = 0;           ///< of the memory
  std::optional<double> sustained{};
  std::optional<std::string> by{};
  [[nodiscard]] std::optional<double> sparse() const {
    return sparsity > 1 ? std::optional(dense * sparsity) : std::nullopt;
  }
  /// Rows of a GEMM at which 2 FLOP a row and weight take as long as reading the weight.
  [[nodiscard]] std::optional<double> critical_rows() const {
    constexpr double kFlop = 2;
    return core::ratio_of(dense * stored_bytes(dtype) / kFlop, byte_per_s);
  }
  [[nodiscard]] std::optional<double> share() const { return core::ratio_of(sustained, dense); }
};

const report::TypedColumns<DatasheetRate>& rate_columns() {
  static const report::TypedColumns<DatasheetRate> columns = {
      {"device", "device", &DatasheetRate::device},
      {"dtype", "dtype", &DatasheetRate::dtype},
      {"dense", "datasheet", &DatasheetRate::dense, Show::si, "flop/s"},
      {"sparse", "with sparsity", &DatasheetRate::sparse, Show::si, "flop/s"},
      {"sustained", "sustained", &DatasheetRate::sustained, Show::si, "flop/s"},
      {"share", "of datasheet", &DatasheetRate::share, Show::percent},
      {"by", "by", &DatasheetRate::by},
      {"critical_rows", "critical batch", &DatasheetRate::critical_rows, Show::si}};
  return columns;
}

DatasheetRate rate_of(const devices::Device& device, const std::string& dtype, double dense,
                      double sparsity) {
  DatasheetRate rate{.device = device.key,
                     .dtype = dtype,
                     .dense = dense,
                     .sparsity = sparsity,
                     .byte_per_s = device.memory.empty() ? 0 : device.memory.back().byte_per_s};
  const auto take = [&](double flop_per_s, const char* by) {
    if (flop_per_s <= 0) return;
    rate.sustained = flop_per_s;
    rate.by = by;
  };
  if (const auto tables = perfmodel::tables_of(device.key)) {
    const auto found = tables->matmul.most_flop_per_s.find(dtype);
    if (found != tables->matmul.most_flop_per_s.end()) {
      take(found->second, "measured");
      return rate;
    }
  }
  if (dtype == "bf16" || dtype == "fp16") {
    const perfmodel::Transfer transfer = perfmodel::transfer_to(device);
    take(transfer.achieved_share * device.peak(dtype).value_or(0),
         transfer.is_share_measured ? "family" : "assumed");
  }
  return rate;
}

}  // namespace

Table datasheet_table(const std::vector<devices::Device>& devices, const std::vector<std::string>& dtypes) {
  const auto is_shown = [&](std::string_view dtype) {
    return dtypes.empty() || std::ranges::find(dtypes, dtype) != dtypes.end();
  };
  std::vector<DatasheetRate> rates;
  for (const devices::Device& device : devices) {
    const devices::Advertised more = devices::advertised(device.key);
    for (const auto& [dtype, dense] : device.peak_flop_per_s) {
      if (!is_shown(dtype)) continue;
      const bool is_sparse = std::ranges::find(kSparse, dtype) != kSparse.end();
      rates.push_back(rate_of(device, dtype, dense, is_sparse ? more.sparsity : 1));
    }
    if (more.int8_op_per_s && is_shown("int8"))
      rates.push_back(rate_of(device, "int8", *more.int8_op_per_s, more.sparsity));
  }
  Table table = rate_columns().table(rates);
  table.notes = {
      "sustained: the highest rate of large GEMMs, measured on such a device, or the share "
      "that devices of its family reach, or (assumed) an H100; -: not measured for the dtype. critical "
      "batch: "
      "rows of a GEMM at which computing takes as long as reading the weights, by the datasheet"};
  return table;
}

}  // namespace rooflm::cli
