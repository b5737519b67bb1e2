// How long an op takes on a device: from tables that were measured op by op.
#include "perfmodel/op_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "devices/cuda_workspaces.h"
#include "perfmodel/op_tables.h"
#include "program/ops.h"

namespace rooflm::perfmodel {
namespace {

using program::Op;
using program::Program;
namespace ops = program::ops;

/// Splits of the inner dimension that libraries try where tiles do not fill the device, and the least of it
/// that is worth a split (as scripts/op_times fits them).
constexpr double kSplits[] = {1, 2, 3, 4, 6, 8};
constexpr double kLeastSplitK = 256;
double peak_of(const devices::Device& device, const char* dtype) {
  const auto peak = device.peak(dtype);
  return peak.value_or(device.peak("fp16").value_or(0));
}

bool is_gemm(const Op& op) {
  return ops::is_matmul(op) || op.is(ops::kMatmulGelu) || op.is(ops::kMatmulGeluBackward);
}

/// The dtype of the rate of a product; fp8 for both kinds of it.
core::DType factors_of(const Program& program, const Op& op) {
  const core::DType dtype = program.tensor(op.inputs.at(0)).dtype;
  return core::is_fp8(dtype) ? core::DType::f8 : dtype;
}

bool is_flash(const Op& op) {
  return op.is(ops::kFlashAttention) || op.is(ops::kFlashAttentionBackward) || op.is(ops::kAttentionBlock) ||
         op.is(ops::kAttentionBlockBackward);
}

std::string name_of_rate(core::DType dtype, Fp32Products products) {
  return std::string(program::rate_name(dtype, products));
}

const MatmulTable::Layout& layout_of(const MatmulTable::Layouts& layouts, const Op& op) {
  if (op.attrs.flag("trans_a")) return layouts.a_transposed;
  return op.attrs.flag("trans_b") ? layouts.b_transposed : layouts.plain;
}

/// What divides the length of the rows of both operands, in elements.
std::int64_t row_multiple(const Op& op) {
  return std::gcd(op.attrs.integer(op.attrs.flag("trans_a") ? "m" : "k"),
                  op.attrs.integer(op.attrs.flag("trans_b") ? "k" : "n"));
}

/// Kinds that were never measured are as fast as elementwise ops that were.
constexpr const char* kElementwise = "swiglu";

}  // namespace

OpTimes::OpTimes(const devices::Device& device, const FrameworkKernels& kernels, const WhatIf& what_if)
    : device_(device), kernels_(kernels) {
  take_tables(device);
  if (kernels_.attention == kOwnAttention) {
    for (const auto& [kind, curve] : tables_.own_moved) tables_.moved.insert_or_assign(kind, curve);
  }
  take_attention(device);
  if (!what_if.is_any()) return;
  tables_.matmul.flop_per_s *= what_if.compute;
  for (auto* heads : {&tables_.attention.forward, &tables_.attention.backward}) {
    for (AttentionTable::Head& head : *heads) head.flop_per_s *= what_if.compute;
  }
  for (auto& [name, own] : tables_.own_attention.kernels) {
    for (auto* heads : {&own.forward, &own.backward}) {
      for (AttentionTable::Head& head : *heads) head.flop_per_s *= what_if.compute;
    }
  }
  memory_scale_ *= what_if.bandwidth;
  // Another chip, that takes the same power.
  for (auto& [dtype, joule] : tables_.energies.joule_per_flop) joule /= what_if.compute;
  for (auto& [head_dim, joule] : tables_.energies.attention_forward) joule /= what_if.compute;
  for (auto& [head_dim, joule] : tables_.energies.attention_backward) joule /= what_if.compute;
  tables_.energies.joule_per_byte /= what_if.bandwidth;
  basis_ = Basis::assumed;
  provenance_ += fmt::format(", with {}", text_of(what_if));
}

void OpTimes::take_tables(const devices::Device& device) {
  if (peak_of(device, "bf16") <= 0 || device.memory.empty() || device.memory.back().byte_per_s <= 0) {
    throw core::UsageError(
        fmt::format("the catalog has no matmul rate or no bandwidth of {}: nothing can be planned there",
                    device.key.empty() ? device.name : device.key));
  }
  multiprocessors_ = device.multiprocessors;
  if (auto measured = tables_of(device.key)) {
    tables_ = std::move(*measured);
    provenance_ = fmt::format("op tables of {}", device.key);
    take_power(device);
    return;
  }
  Transfer transfer = transfer_to(device);
  tables_ = std::move(transfer.tables);
  source_ = devices::find_device(tables_.device);
  const devices::Device& source = *source_;
  compute_scale_ =
      peak_of(device, "bf16") / peak_of(source, "bf16") * (transfer.achieved_share / transfer.tables_share);
  memory_scale_ =
      device.memory.back().byte_per_s / source.memory.back().byte_per_s * transfer.bandwidth_share;
  if (multiprocessors_ <= 0) multiprocessors_ = tables_.multiprocessors;
  tables_.matmul_spread = tables_.attention_spread = tables_.moved_spread = transfer.spread;
  basis_ = Basis::assumed;
  provenance_ = fmt::format("op tables of {}, scaled by datasheet rates", tables_.device);
  if (!transfer.is_same_chip) {
    tables_.power = {};
    return;
  }
  // The clock is the power law's business, not the data sheet's.
  const double peaks = peak_of(device, "bf16") / peak_of(source, "bf16");
  const double parts = static_cast<double>(device.multiprocessors) / source.multiprocessors;
  if (device.multiprocessors > 0 && device.power_w) clock_share_ = parts / peaks;
  compute_scale_ *= clock_share_;
  if (clock_share_ > 0) tables_.power.max_hz /= std::max(1.0, clock_share_);
  take_power(device);
  limit_streams();
}

/// Moving a byte takes what it did on the device of the tables, unless a copy at the whole bandwidth would
/// leave arithmetic nothing of another board's limit: boards are not built so. Assumed: a copy takes four
/// fifths of the limit at most. On the tables' device it takes 72 %.
void OpTimes::limit_streams() {
  constexpr double kMostOfLimit = 0.8;
  const PowerLaw& law = tables_.power;
  const double bandwidth = tables_.matmul.byte_per_s * memory_scale_;
  const double left_w = kMostOfLimit * law.limit_w - law.static_w;
  if (!law.is_known() || left_w <= 0 || bandwidth <= 0) return;
  tables_.energies.joule_per_byte = std::min(tables_.energies.joule_per_byte, left_w / bandwidth);
}

double OpTimes::parts_of_chip() const { return multiprocessors_ / tables_.multiprocessors; }

void OpTimes::take_power(const devices::Device& device) {
  PowerLaw& law = tables_.power;
  law.limit_w = device.power_w.value_or(0);
  law.static_w *= parts_of_chip();
}

/// Of `batch` products at once.
struct OpTimes::Problem {
  double batch = 1, m = 0, n = 0, k = 0;
  double moved_bytes = 0, stored_bytes = 0;
  const std::vector<MatmulTable::Tile>* tiles = nullptr;
  bool splits_k = true;
  double parts = 0;  ///< of k, where the kernel's rule is known; 0: what is fastest
  double whole_waves = 0, least_split_k = 0;
};

double OpTimes::rate_of(core::DType dtype, Fp32Products products) const {
  const auto relative = tables_.matmul.rate_of_dtype.find(name_of_rate(dtype, products));
  if (relative == tables_.matmul.rate_of_dtype.end()) return 0;
  return tables_.matmul.flop_per_s * relative->second * scale_of(dtype, products);
}

/// Of other devices: the share of the peak that the tables' device reaches, of this dtype's own peak.
double OpTimes::scale_of(core::DType dtype, Fp32Products products) const {
  if (!source_) return 1;
  const devices::Device& source = *source_;
  const std::string name = name_of_rate(dtype, products);
  const double own = device_.peak(name).value_or(0);
  const double theirs = source.peak(name).value_or(0);
  if (own <= 0 || theirs <= 0) return 0;
  return own / theirs * (compute_scale_ / (peak_of(device_, "bf16") / peak_of(source, "bf16")));
}

/// The tile model was fitted to GEMMs in 16 bits.
Basis OpTimes::basis_of(core::DType dtype) const {
  return core::is_fp8(dtype) || dtype == core::DType::f32 ? Basis::assumed : basis_;
}

/// As if the pipe took the same power.
double OpTimes::pipe_joule(core::DType dtype, Fp32Products products) const {
  const double peak = device_.peak("bf16").value_or(0);
  const double own = device_.peak(name_of_rate(dtype, products)).value_or(0);
  return own > 0 ? peak / own : 0;
}

double OpTimes::matmul_joule(double flop, core::DType dtype, Fp32Products products) const {
  const auto& known = tables_.energies.joule_per_flop;
  if (const auto found = known.find(name_of_rate(dtype, products)); found != known.end())
    return flop * found->second;
  const auto bf16 = known.find("bf16");
  return bf16 == known.end() ? 0 : flop * bf16->second * pipe_joule(dtype, products);
}

double OpTimes::matmul_seconds(const Problem& p, double rate) const {
  const MatmulTable& table = tables_.matmul;
  const double bandwidth = table.byte_per_s * memory_scale_;
  double best = std::numeric_limits<double>::infinity();
  const std::span<const double> splits = p.parts > 0 ? std::span(&p.parts, 1) : std::span(kSplits);
  for (const MatmulTable::Tile& tile : *p.tiles) {
    const double tiles = p.batch * std::ceil(p.m / tile.rows) * std::ceil(p.n / tile.columns);
    for (const double split : splits) {
      if (split > 1 && p.parts == 0 &&
          (!p.splits_k || tiles > multiprocessors_ || p.k / split < p.least_split_k))
        continue;
      const double exact = tiles * split / multiprocessors_;
      const double waves = std::max(1.0, p.whole_waves * std::ceil(exact) + (1 - p.whole_waves) * exact);
      const double compute = waves * 2 * tile.rows * tile.columns * (p.k / split + table.fill_k) *
                             multiprocessors_ / (rate * tile.share);
      double sums = split > 1 ? split * p.m * p.n * sizeof(float) / bandwidth : 0;
      if (p.parts > 1) sums = 2 * p.batch * sums + table.launch_s;  // written, and read by another kernel
      const double stored = table.store_share * p.stored_bytes / bandwidth;
      best = std::min(best, std::max(compute + stored, p.moved_bytes / bandwidth) + sums);
    }
  }
  return best;
}

MatmulTable::Layouts OpTimes::layouts_of(core::DType dtype, Fp32Products products) const {
  const auto found = tables_.matmul.layouts.find(name_of_rate(dtype, products));
  if (found != tables_.matmul.layouts.end()) return found->second;
  const MatmulTable::Layout any{.whole_waves = tables_.matmul.whole_waves, .least_split_k = kLeastSplitK};
  return {.plain = any, .b_transposed = any, .a_transposed = any};
}

/// GEMMs of cuBLASLt have GELU in their epilogue in 16 bits only: what is counted of it is a kernel of its
/// own.
double OpTimes::gelu_seconds(const Op& op, Problem& problem) const {
  const double result = problem.batch * problem.m * problem.n * sizeof(float);
  const double moved = (op.is(ops::kMatmulGelu) ? 2 : 3) * result;
  problem.stored_bytes = result;
  problem.moved_bytes -= moved - result;
  return moved_time(op, moved, true).seconds;
}

/// Of a packed weight and many rows: a kernel writes what the matmul then reads.
double OpTimes::unpack_seconds(const Program& program, const Op& op, Problem& problem) const {
  const program::Tensor& weight = program.tensor(op.inputs.at(1));
  if (!core::is_packed(weight.dtype) || op.attrs.integer("m") <= devices::kMostPackedRows) return 0;
  const auto packed = static_cast<double>(weight.bytes());
  const double plain = problem.n * problem.k * static_cast<double>(core::size_of(factors_of(program, op)));
  problem.moved_bytes += plain - packed;
  return moved_time(op, packed + plain, false).seconds;
}

OpTime OpTimes::matmul_time(const Program& program, const Op& op) const {
  const program::Cost cost = program::cost_of(program, op);
  const auto number = [&](const char* name) { return static_cast<double>(op.attrs.integer(name)); };
  const auto batch = static_cast<double>(op.attrs.integer("batch"));
  const bool is_looped = op.is(ops::kMatmul) && op.attrs.flag("looped");
  const double times = is_looped ? batch : 1;
  Problem problem{.batch = batch / times,
                  .m = number("m"),
                  .n = number("n"),
                  .k = number("k"),
                  .moved_bytes = static_cast<double>(cost.bytes_read + cost.bytes_written) / times,
                  .stored_bytes = static_cast<double>(cost.bytes_written) / times};
  // What an epilogue adds to, it reads as it writes.
  if (op.attrs.flag("accumulate")) problem.stored_bytes *= 2;
  const core::DType dtype = factors_of(program, op);
  const Fp32Products products = program::fp32_products_of(op);
  const auto own_tiles = tables_.matmul.tiles_of_dtype.find(name_of_rate(dtype, products));
  problem.tiles =
      own_tiles == tables_.matmul.tiles_of_dtype.end() ? &tables_.matmul.tiles : &own_tiles->second;
  if (dtype == core::DType::f32 && products == Fp32Products::bf16x6) {
    const devices::GemmSizes sizes{.batch = op.attrs.integer("batch") / static_cast<std::int64_t>(times),
                                   .m = op.attrs.integer("m"),
                                   .n = op.attrs.integer("n"),
                                   .k = op.attrs.integer("k")};
    problem.parts = static_cast<double>(
        devices::bf16x6_parts(sizes, device_.multiprocessors, op.lane == program::Lane::background));
  }
  const double unpack_s = unpack_seconds(program, op, problem);
  double gelu_s = 0;
  if (!ops::is_matmul(op) && dtype == core::DType::f32) {
    gelu_s = gelu_seconds(op, problem);
  } else if (const auto own = tables_.matmul.epilogues.find(op.def->name);
             own != tables_.matmul.epilogues.end()) {
    problem.stored_bytes *= own->second;
  }
  const MatmulTable::Layouts layouts = layouts_of(dtype, products);
  const MatmulTable::Layout& layout = layout_of(layouts, op);
  problem.splits_k = layout.splits_k;
  problem.whole_waves = layout.whole_waves;
  problem.least_split_k = layout.least_split_k;
  if (!layout.tiles.empty()) problem.tiles = &layout.tiles;
  const bool has_16_bits = core::size_of(dtype) == core::size_of(core::DType::bf16);
  const bool is_uneven = has_16_bits && row_multiple(op) % tables_.matmul.even_rows != 0;
  const bool is_grouped = op.is(ops::kGroupedMatmul) || op.is(ops::kGroupedMatmulWeight);
  const double rate = layout.share * rate_of(dtype, products) *
                      (is_uneven ? tables_.matmul.uneven_share : 1) *
                      (is_grouped ? kernels_.grouped_share : 1);
  if (rate <= 0) {
    throw core::Unavailable(
        fmt::format("{} has no matmul rate of {} in the catalog", device_.key, core::name_of(dtype)));
  }
  OpTime time;
  time.launch_s = times * tables_.matmul.launch_s;
  time.seconds = times * matmul_seconds(problem, rate) + time.launch_s + gelu_s + unpack_s;
  time.work_s = static_cast<double>(cost.matmul_flop) / rate;
  time.moved_s =
      gelu_s + unpack_s + times * problem.moved_bytes / (tables_.matmul.byte_per_s * memory_scale_);
  time.core_j = matmul_joule(static_cast<double>(cost.matmul_flop), dtype, products);
  time.byte_j = times * problem.moved_bytes * tables_.energies.joule_per_byte;
  const auto most = tables_.matmul.most_flop_per_s.find(name_of_rate(dtype, products));
  if (most != tables_.matmul.most_flop_per_s.end() && tables_.power.is_known()) {
    // All GEMMs stop following the clock where the largest do. Those with shares of their own by layout were
    // measured at the highest clock: they follow it up to the most.
    const bool has_layouts = tables_.matmul.layouts.contains(name_of_rate(dtype, products));
    const double reached =
        has_layouts ? static_cast<double>(cost.matmul_flop) / (time.seconds - time.launch_s) / layout.share
                    : rate_of(dtype, products);
    time.most_share = std::max(1.0, most->second * parts_of_chip() / reached);
  }
  time.basis = basis_of(dtype);
  time.spread = std::max(tables_.matmul_spread, kernels_.matmul_spread);
  if (time.basis != basis_ || is_grouped) time.spread = std::max(time.spread, kUnmeasuredSpread);
  return time;
}

OpTime OpTimes::moved_time(const Op& op, double bytes, bool is_f32) const {
  if (const auto more = kernels_.moved.find(op.def->name); more != kernels_.moved.end())
    bytes *= more->second;
  auto own = tables_.moved.end();
  if (is_f32) own = tables_.moved.find(std::string(op.def->name) + "/fp32");
  if (own == tables_.moved.end()) own = tables_.moved.find(op.def->name);
  const Curve& curve = own != tables_.moved.end() ? own->second : tables_.moved.at(kElementwise);
  // What a faster memory does in the same time is what a slower one does of fewer bytes.
  OpTime time;
  time.launch_s = curve.front().second;
  time.seconds = memory_scale_ == 1
                     ? seconds_at(curve, bytes)
                     : std::max(curve.front().second, seconds_at(curve, bytes) / memory_scale_);
  time.moved_s = std::max(0.0, time.seconds - time.launch_s);
  time.byte_j = bytes * tables_.energies.joule_per_byte;
  time.spread = tables_.moved_spread + (own == tables_.moved.end() ? 0.1 : 0.0);
  time.basis = basis_;
  return time;
}

/// Of rooflm's kernels; what frameworks move is by their own factors.
double OpTimes::row_factor(const Program& program, const Op& op) const {
  const auto found = tables_.long_rows.find(op.def->name);
  if (found == tables_.long_rows.end() || kernels_.moved.contains(op.def->name)) return 1;
  const program::Tensor& rows = program.tensor(op.inputs.front());
  const auto bytes = static_cast<double>(rows.shape[rows.shape.rank() - 1] *
                                         static_cast<std::int64_t>(core::size_of(rows.dtype)));
  double factor = 1;
  for (const auto& [from, of_rows] : found->second) {
    if (bytes >= from) factor = of_rows;
  }
  return factor;
}

/// Limits of measured devices leave them clocks near that of the tables, which hide what bytes hid there.
OpTime OpTimes::time_of(const Program& program, const Op& op) const {
  OpTime time = time_at_table_clock(program, op);
  if (source_ && tables_.power.is_known() && time.work_s <= time.moved_s) time.hidden_s = time.work_s;
  return time;
}

OpTime OpTimes::time_at_table_clock(const Program& program, const Op& op) const {
  if (is_gemm(op)) return matmul_time(program, op);
  if (is_flash(op)) return attention_time(program, op);
  const program::Cost cost = program::cost_of(program, op);
  const auto first =
      std::ranges::find_if(op.inputs, [](program::TensorId id) { return id != program::kNone; });
  const bool is_f32 = first == op.inputs.end() || program.tensor(*first).dtype == core::DType::f32;
  return moved_time(op, static_cast<double>(cost.bytes_read + cost.bytes_written) * row_factor(program, op),
                    is_f32);
}

}  // namespace rooflm::perfmodel
