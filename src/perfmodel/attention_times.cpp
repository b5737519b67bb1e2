// How long flash attention takes: cuDNN's, that of frameworks, and rooflm's own kernels.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "devices/cuda_attention.h"
#include "perfmodel/op_tables.h"
#include "perfmodel/op_times.h"
#include "program/ops.h"

namespace rooflm::perfmodel {
namespace {

namespace ops = program::ops;
using devices::AttentionFamily;
using program::Op;
using program::Program;

constexpr double kTileRows = 128;  ///< of cuDNN's blocks, and of frameworks'
/// The same in gradients of heads wider than 128, as how long few heads take says.
constexpr double kWideHeadRows = 64;
constexpr double kAnyHead = 128;  ///< of kernels whose energy was measured with heads of one size

bool is_forward_op(const Op& op) { return op.is(ops::kFlashAttention) || op.is(ops::kAttentionBlock); }

std::string_view name_of(AttentionFamily family, const devices::AttentionUse& use) {
  switch (family) {
    case AttentionFamily::cudnn:
      break;
    case AttentionFamily::warp_groups:
      return "warp_groups";
    case AttentionFamily::one_pass:
      return "one_pass";
    case AttentionFamily::tensor_cores:
      if (use.dtype != core::DType::f32) return "tensor_cores";
      return use.fp32_products == Fp32Products::tf32 ? "tensor_cores_tf32" : "tensor_cores_bf16x6";
    case AttentionFamily::cuda_cores:
      return "cuda_cores";
  }
  return {};
}

/// The nearest measured head size; a kernel is made for a few of them.
const AttentionTable::Head& nearest(const std::vector<AttentionTable::Head>& heads, double head_dim) {
  return *std::ranges::min_element(
      heads, {}, [&](const AttentionTable::Head& h) { return std::abs(std::log(h.head_dim / head_dim)); });
}

/// The narrowest kernel that takes a head; the widest where none does.
const AttentionTable::Head& narrowest(const std::vector<AttentionTable::Head>& heads, double head_dim) {
  const auto found =
      std::ranges::find_if(heads, [&](const AttentionTable::Head& h) { return h.head_dim >= head_dim; });
  return found == heads.end() ? heads.back() : *found;
}

}  // namespace

/// One op of flash attention.
struct OpTimes::Attention {
  bool is_forward = true;
  bool is_ring = false;  ///< a block of ring attention
  devices::AttentionUse use{};
  devices::AttentionSizes sizes{};
  double flop = 0, bytes = 0;

  Attention(const Program& program, const Op& op, bool is_deterministic)
      : is_forward(is_forward_op(op)),
        is_ring(op.is(ops::kAttentionBlock) || op.is(ops::kAttentionBlockBackward)) {
    const program::TensorId qkv = op.inputs.at(is_forward ? 0 : 1);
    const core::Shape& shape = program.shape(qkv);
    use = {.dtype = program.tensor(qkv).dtype,
           .fp32_products = program::fp32_products_of(op),
           .is_gradient = !is_forward,
           .is_deterministic = is_deterministic,
           .rules = devices::attention_rules_of(op, shape[1])};
    sizes = {.batch = shape[0],
             .seq = shape[1],
             .heads = op.attrs.integer("heads"),
             .kv_heads = op.attrs.integer("kv_heads"),
             .head_dim = op.attrs.integer("head_dim")};
    const program::Cost cost = program::cost_of(program, op);
    flop = static_cast<double>(cost.matmul_flop);
    bytes = static_cast<double>(cost.bytes_read + cost.bytes_written);
  }
  [[nodiscard]] double seq() const { return static_cast<double>(sizes.seq); }
  [[nodiscard]] double head_dim() const { return static_cast<double>(sizes.head_dim); }
};

void OpTimes::take_attention(const devices::Device& device) {
  if (kernels_.attention == kOwnAttention) return;
  const auto own = attention_kernels(kernels_.attention, device.key);
  if (!own) return;
  // Tables are at one clock: the kernels follow the clock as products do. Rates of the device itself are not
  // scaled to it.
  double share = 1;
  if (own->hz == 0) {
    share = 1 / compute_scale_;
  } else if (tables_.power.table_hz > 0) {
    share = tables_.power.table_hz / own->hz;
  }
  const double gain = tables_.attention.nondeterministic_gain;
  tables_.attention.forward = own->table.forward;
  tables_.attention.backward = own->table.backward;
  tables_.attention_spread = std::max(tables_.attention_spread, own->spread);
  if (own->forward_joule_per_flop > 0) {
    tables_.energies.attention_forward = {{kAnyHead, own->forward_joule_per_flop}};
    tables_.energies.attention_backward = {{kAnyHead, own->backward_joule_per_flop}};
  }
  for (AttentionTable::Head& head : tables_.attention.forward) head.flop_per_s *= share;
  for (AttentionTable::Head& head : tables_.attention.backward) head.flop_per_s *= share / gain;
}

/// Of the tables. What rooflm asks cuDNN for and was not measured is padded to 64 or 128 columns: heads of 80
/// run at 0.64 of the rate of 128. Wider heads are as fast as those of 128.
AttentionTable::Head OpTimes::table_head(const Attention& a) const {
  constexpr std::array<double, 2> kWidths = {64, 128};
  const auto& heads = a.is_forward ? tables_.attention.forward : tables_.attention.backward;
  AttentionTable::Head head = nearest(heads, a.head_dim());
  if (kernels_.attention != kOwnAttention || head.head_dim == a.head_dim()) return head;
  const auto* width = std::ranges::find_if(kWidths, [&](double w) { return a.head_dim() <= w; });
  if (width == kWidths.end()) return head;
  head = nearest(heads, *width);
  head.flop_per_s *= a.head_dim() / *width;
  return head;
}

/// The block with most work has one multiprocessor: `rows` of a head's T rows, and all of their columns,
/// where the mean is half of them.
double OpTimes::longest_block_s(const Attention& a, double flop, double rows, double rate) const {
  const auto heads = static_cast<double>(a.sizes.batch * a.sizes.heads);
  return 2 * flop / heads * std::min(1.0, rows / a.seq()) * multiprocessors_ / rate;
}

OpTime OpTimes::attention_time(const Program& program, const Op& op) const {
  const Attention a(program, op, kernels_.is_deterministic);
  // The tables have ops of steps in bf16, with whichever kernels ran where cuDNN takes the shape; gradients
  // in one pass were not among them. A block of a ring costs what flash attention of its size does.
  const bool is_in_tables = a.use.dtype == core::DType::bf16 &&
                            devices::whole_tiles(a.sizes.seq) == a.sizes.seq &&
                            devices::fits_cudnn_attention(a.use.dtype, a.sizes);
  const AttentionFamily family = devices::attention_family_of(device_.key, a.use, a.sizes);
  const bool has_own_kernels = !a.is_ring || a.use.dtype == core::DType::f32;
  if (kernels_.attention == kOwnAttention && has_own_kernels &&
      (family == AttentionFamily::one_pass || (!is_in_tables && family != AttentionFamily::cudnn))) {
    return own_attention_time(a);
  }
  const AttentionTable& table = tables_.attention;
  const AttentionTable::Head head = table_head(a);
  const double relative = rate_of(a.use.dtype, a.use.fp32_products) / tables_.matmul.flop_per_s;
  double long_rate = head.flop_per_s * relative;
  if (!a.is_forward && !kernels_.is_deterministic) long_rate *= table.nondeterministic_gain;
  OpTime time;
  // Both axes of the scores are computed to the end of a tile; frameworks' kernels have smaller tiles.
  const double tiles = kernels_.attention == kOwnAttention && family == AttentionFamily::cudnn
                           ? static_cast<double>(devices::whole_tiles(a.sizes.seq)) / a.seq()
                           : 1;
  const double flop = a.flop * tiles * tiles;
  const double rows = !a.is_forward && a.head_dim() > 128 ? kWideHeadRows : kTileRows;
  // A block begins and ends with about what a tile of keys takes.
  time.work_s = std::max(flop / long_rate * (a.seq() + head.half_seq) / a.seq(),
                         longest_block_s(a, flop, rows, long_rate) * (a.seq() + kTileRows) / a.seq());
  time.moved_s = a.bytes / (tables_.matmul.byte_per_s * memory_scale_);
  time.byte_j = a.bytes * tables_.energies.joule_per_byte;
  time.launch_s = a.is_forward ? table.forward_launch_s : table.backward_launch_s;
  time.seconds = time.launch_s + std::max(time.work_s, time.moved_s);
  const double executed = a.is_forward ? 0.5 : 0.5 * 5 / 4;  // of what is counted
  const OpEnergies& energies = tables_.energies;
  const auto& joule = a.is_forward ? energies.attention_forward : energies.attention_backward;
  time.core_j = executed * a.flop * interpolate(joule, a.head_dim());
  time.spread = tables_.attention_spread;
  time.basis = basis_of(a.use.dtype);
  return time;
}

/// rooflm's own kernels: docs/perfmodel.md, "Attention".
OpTime OpTimes::own_attention_time(const Attention& a) const {
  const AttentionFamily family = devices::attention_family_of(device_.key, a.use, a.sizes);
  const devices::AttentionTile tile = devices::attention_tile(family, a.use, a.sizes.head_dim);
  const OwnAttention::Kernels& own = tables_.own_attention.kernels.find(name_of(family, a.use))->second;
  const auto width = static_cast<double>(tile.width);
  const AttentionTable::Head& head = narrowest(a.is_forward ? own.forward : own.backward, width);
  const bool is_simt = family == AttentionFamily::cuda_cores;
  const core::DType pipe = is_simt ? core::DType::f32 : a.use.dtype;
  const Fp32Products products = is_simt ? Fp32Products::plain : a.use.fp32_products;
  const double rate = head.flop_per_s * scale_of(pipe, products);
  const double flop = a.flop * tile.padding;

  // A block of keys' gradients has all query heads of its group: in one pass all matmuls, in two the second
  // pass, four of seven matmuls.
  const double group = static_cast<double>(a.sizes.heads) / static_cast<double>(a.sizes.kv_heads);
  const bool is_one_pass = family == AttentionFamily::one_pass;
  const double all_s = flop / rate * (a.seq() + head.half_seq) / a.seq();
  const double longest_s = longest_block_s(a, flop, static_cast<double>(tile.rows), rate);
  const auto pass_s = [&](double share, double heads_of_block) {
    return share * std::max(all_s, heads_of_block * longest_s);
  };

  OpTime time;
  if (a.is_forward) {
    time.work_s = pass_s(1, 1);
  } else if (is_one_pass) {
    time.work_s = pass_s(1, group);
  } else {
    time.work_s = pass_s(3.0 / 7, 1) + pass_s(4.0 / 7, group);
  }
  time.moved_s = a.bytes / (tables_.matmul.byte_per_s * memory_scale_);
  time.byte_j = a.bytes * tables_.energies.joule_per_byte;
  time.launch_s = a.is_forward ? tables_.attention.forward_launch_s : tables_.attention.backward_launch_s;
  time.seconds = time.launch_s + std::max(time.work_s, time.moved_s);
  const OpEnergies& energies = tables_.energies;
  const double matmuls = is_one_pass ? 5 : 7;
  const double executed_flop = flop * (a.is_forward ? 0.5 : 0.5 * matmuls / 4);  // of what is counted
  const double joule =
      interpolate(a.is_forward ? energies.attention_forward : energies.attention_backward, width);
  time.core_j = is_simt ? matmul_joule(executed_flop, pipe, products)
                        : executed_flop * joule * pipe_joule(pipe, products);
  const bool is_measured = std::ranges::find(own.measured, head.head_dim) != own.measured.end();
  time.basis = is_measured ? basis_ : Basis::assumed;
  time.spread = std::max(tables_.own_attention.spread, is_measured ? 0.0 : kUnmeasuredSpread);
  return time;
}

}  // namespace rooflm::perfmodel
