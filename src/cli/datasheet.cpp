// Advertised rates of a device of the catalog, beside those that GEMMs sustain.
#include "cli/datasheet.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "devices/advertised.h"
#include "perfmodel/op_tables.h"

namespace rooflm::cli {
namespace {

constexpr std::array<std::string_view, 4> kSparse = {"tf32", "bf16", "fp16", "fp8"};

struct Sustained {
  double flop_per_s = 0;  ///< 0: not known
  const char* by = "";
};

Sustained sustained_rate(const devices::Device& device, const std::string& dtype) {
  if (const auto tables = perfmodel::tables_of(device.key)) {
    const auto found = tables->matmul.most_flop_per_s.find(dtype);
    if (found != tables->matmul.most_flop_per_s.end()) return {found->second, "measured"};
  }
  if (dtype != "bf16" && dtype != "fp16") return {};
  return {perfmodel::transfer_to(device).achieved_share * device.peak(dtype).value_or(0), "family"};
}

/// `sparsity`: 1 for rates that have none.
void add_row(Table& table, const devices::Device& device, const std::string& dtype, double dense,
             double sparsity) {
  Row row;
  row.set("device", device.key);
  row.set("dtype", dtype);
  row.set("dense", dense);
  row.set("sparse", sparsity > 1 ? Cell(dense * sparsity) : Cell());
  const Sustained sustained = sustained_rate(device, dtype);
  if (sustained.flop_per_s > 0) {
    row.set("sustained", sustained.flop_per_s);
    row.set("share", sustained.flop_per_s / dense);
    row.set("by", sustained.by);
  }
  table.rows.push_back(std::move(row));
}

}  // namespace

Table datasheet_table(const std::vector<devices::Device>& devices) {
  Table table{.columns = {{"device", "device"},
                          {"dtype", "dtype"},
                          {"dense", "datasheet", Show::si, "flop/s"},
                          {"sparse", "with sparsity", Show::si, "flop/s"},
                          {"sustained", "sustained", Show::si, "flop/s"},
                          {"share", "of datasheet", Show::percent},
                          {"by", "by"}},
              .rows = {},
              .notes = {"sustained: the highest rate of large GEMMs, measured on such a device, or the share "
                        "that devices of its family reach; - if nobody measured it"}};
  for (const devices::Device& device : devices) {
    const devices::Advertised more = devices::advertised(device.key);
    for (const auto& [dtype, dense] : device.peak_flop_per_s) {
      const bool is_sparse = std::ranges::find(kSparse, dtype) != kSparse.end();
      add_row(table, device, dtype, dense, is_sparse ? more.sparsity : 1);
    }
    if (more.int8_op_per_s) add_row(table, device, "int8", *more.int8_op_per_s, more.sparsity);
  }
  return table;
}

}  // namespace rooflm::cli
