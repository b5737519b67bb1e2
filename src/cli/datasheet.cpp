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

/// A rate of the datasheet, and what GEMMs sustain of it where somebody measured that.
struct DatasheetRate {
  std::string device{}, dtype{};
  double dense = 0, sparsity = 1;  ///< sparsity 1: has none
  std::optional<double> sustained{};
  std::optional<std::string> by{};
  [[nodiscard]] std::optional<double> sparse() const {
    return sparsity > 1 ? std::optional(dense * sparsity) : std::nullopt;
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
      {"by", "by", &DatasheetRate::by}};
  return columns;
}

DatasheetRate rate_of(const devices::Device& device, const std::string& dtype, double dense,
                      double sparsity) {
  DatasheetRate rate{.device = device.key, .dtype = dtype, .dense = dense, .sparsity = sparsity};
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
  if (dtype == "bf16" || dtype == "fp16")
    take(perfmodel::transfer_to(device).achieved_share * device.peak(dtype).value_or(0), "family");
  return rate;
}

}  // namespace

Table datasheet_table(const std::vector<devices::Device>& devices) {
  std::vector<DatasheetRate> rates;
  for (const devices::Device& device : devices) {
    const devices::Advertised more = devices::advertised(device.key);
    for (const auto& [dtype, dense] : device.peak_flop_per_s) {
      const bool is_sparse = std::ranges::find(kSparse, dtype) != kSparse.end();
      rates.push_back(rate_of(device, dtype, dense, is_sparse ? more.sparsity : 1));
    }
    if (more.int8_op_per_s) rates.push_back(rate_of(device, "int8", *more.int8_op_per_s, more.sparsity));
  }
  Table table = rate_columns().table(rates);
  table.notes = {
      "sustained: the highest rate of large GEMMs, measured on such a device, or the share "
      "that devices of its family reach; - if nobody measured it"};
  return table;
}

}  // namespace rooflm::cli
