// What rooflm's kernels hold on a GPU beside the tensors of a program.
#include "perfmodel/kernel_workspaces.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>

#include "devices/cuda_attention.h"
#include "devices/cuda_workspaces.h"
#include "program/fp32_products.h"
#include "program/ops.h"

namespace rooflm::perfmodel {
namespace {

namespace ops = program::ops;
using devices::AttentionSizes;
using program::Op;
using program::Program;

AttentionSizes attention_sizes(const Program& p, const Op& op) {
  const core::Shape& qkv = p.shape(op.inputs.at(1));
  return {.batch = qkv[0],
          .seq = qkv[1],
          .heads = op.attrs.integer("heads"),
          .kv_heads = op.attrs.integer("kv_heads"),
          .head_dim = op.attrs.integer("head_dim")};
}

std::int64_t attention_gradient_bytes(const Program& p, const Op& op, const devices::Device& device,
                                      bool is_deterministic) {
  const AttentionSizes sizes = attention_sizes(p, op);
  const devices::AttentionUse use{.dtype = p.tensor(op.inputs.at(1)).dtype,
                                  .fp32_products = program::fp32_products_of(op),
                                  .is_gradient = true,
                                  .is_deterministic = is_deterministic,
                                  .rules = devices::attention_rules_of(op, sizes.seq)};
  const devices::AttentionFamily family = devices::attention_family_of(device.key, use, sizes);
  if (family == devices::AttentionFamily::cudnn)
    return devices::cudnn_gradient_bytes(sizes, is_deterministic);
  if (family == devices::AttentionFamily::one_pass) return devices::one_pass_gradient_bytes(sizes);
  return devices::own_gradient_bytes(sizes);
}

/// Of latent attention or its gradient; `q`: its input with the queries.
std::int64_t latent_scratch_bytes(const Program& p, const Op& op, std::size_t q) {
  const program::Tensor& queries = p.tensor(op.inputs.at(q));
  const std::int64_t heads = op.attrs.integer("heads");
  const AttentionSizes sizes{
      .batch = queries.shape[0],
      .seq = queries.shape[1],
      .heads = heads,
      .kv_heads = heads,
      .head_dim = devices::latent_head_dim(op.attrs.integer("qk_dim"), op.attrs.integer("v_dim"))};
  return devices::latent_attention_bytes(sizes, static_cast<std::int64_t>(core::size_of(queries.dtype)),
                                         q > 0);
}

std::int64_t norm_scratch_bytes(const Program& p, const Op& op, const devices::Device& device) {
  const core::Shape& x = p.shape(op.inputs.at(1));
  const std::int64_t cols = x[-1];
  // Of the weight, of layernorm's bias, and of the bias before it.
  const int arrays = !op.is(program::ops::kLayerNormBackward) ? 1 : op.attrs.flag("bias_gradient") ? 3 : 2;
  return devices::norm_gradient_bytes(x.numel() / cols, cols, device.multiprocessors, arrays);
}

/// A matmul, or one with another op in it; those of experts are summed in one part.
bool is_bf16x6_matmul(const Op& op) {
  const bool is_grouped = op.is(ops::kGroupedMatmul) || op.is(ops::kGroupedMatmulWeight);
  return op.def->work == program::Work::matmul && !is_grouped &&
         program::fp32_products_of(op) == program::Fp32Products::bf16x6;
}

std::int64_t bf16x6_bytes(const Op& op, const devices::Device& device) {
  const auto size = [&](const char* name) { return op.attrs.integer(name); };
  const std::int64_t batch = op.attrs.flag("looped") ? 1 : size("batch");
  const devices::GemmSizes sizes{.batch = batch, .m = size("m"), .n = size("n"), .k = size("k")};
  return devices::bf16x6_workspace_bytes(sizes, devices::bf16x6_parts(sizes, device.multiprocessors, false));
}

/// Scratch memory as Context::scratch hands it out: blocks stay, and a new one is at least twice the last.
class Scratch {
 public:
  void reserve(std::int64_t bytes) {
    if (bytes <= last_) return;
    last_ = std::max(bytes, 2 * last_);
    all_ += last_;
  }
  [[nodiscard]] std::int64_t bytes() const { return all_; }

 private:
  std::int64_t last_ = 0, all_ = 0;
};

}  // namespace

double kernel_workspace_bytes(const Program& program, const devices::Device& device, bool is_deterministic) {
  if (device.kind != devices::Kind::gpu) return 0;
  Scratch scratch;
  bool has_side_matmul = false;
  std::set<std::tuple<std::int64_t, std::int64_t, double>> tables;  // of RoPE: positions, pairs, theta
  for (const Op& op : program.ops) {
    if (op.is(ops::kMatmul) && op.lane == program::Lane::background) {
      has_side_matmul = true;
    } else if (is_bf16x6_matmul(op)) {
      scratch.reserve(bf16x6_bytes(op, device));
    }
    if (op.is(ops::kFlashAttentionBackward))
      scratch.reserve(attention_gradient_bytes(program, op, device, is_deterministic));
    if (op.is(ops::kLatentAttention)) scratch.reserve(latent_scratch_bytes(program, op, 0));
    if (op.is(ops::kLatentAttentionBackward)) scratch.reserve(latent_scratch_bytes(program, op, 3));
    if (op.is(ops::kLayerNormBackward) || op.is(ops::kRmsNormBackward))
      scratch.reserve(norm_scratch_bytes(program, op, device));
    if (op.is(ops::kDispatch)) {
      const std::int64_t choices = program.shape(op.inputs.at(0)).numel();
      scratch.reserve(devices::dispatch_bytes(choices, op.attrs.integer("experts")));
    }
    if (op.is(ops::kRouteBackward) && op.attrs.number("balance") != 0)
      scratch.reserve(devices::route_gradient_bytes(op.attrs.integer("experts")));
    if (op.is(ops::kRope)) {
      const std::int64_t dims = op.attrs.integer(op.attrs.has("dims") ? "dims" : "head_dim");
      tables.insert({program.shape(op.inputs.at(0))[1], dims / 2, op.attrs.number("theta")});
    }
  }
  std::int64_t bytes = devices::kGemmWorkspaceBytes + scratch.bytes();
  if (has_side_matmul) bytes += devices::kSideGemmWorkspaceBytes;
  constexpr auto kOfTables = static_cast<std::int64_t>(2 * sizeof(float));  // cosine and sine
  for (const auto& [positions, pairs, theta] : tables) bytes += kOfTables * positions * pairs;
  return static_cast<double>(bytes);
}

}  // namespace rooflm::perfmodel
