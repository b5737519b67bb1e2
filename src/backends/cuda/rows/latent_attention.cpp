// Binds latent attention to its ops: packed and padded, it is flash attention.
#include "backends/cuda/kernels/attention/latent_attention.h"

#include <cmath>

#include "backends/cuda/rows/rows.h"
#include "devices/cuda_workspaces.h"
#include "program/ops.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

/// Scale of an op on heads of `qk_dim` elements.
float scale_of(const OpView& v, std::int64_t qk_dim) {
  return v.op.attrs.has("scale") ? v.number("scale") : 1.0F / std::sqrt(static_cast<float>(qk_dim));
}

struct Latent {
  DType dtype;
  LatentShape heads;
  AttentionShape flash;
  devices::AttentionSizes sizes;

  /// `q`: index of the input q; kv and rotary follow.
  Latent(const OpView& v, std::size_t q) : dtype(v.in(q).dtype) {
    const std::int64_t qk_dim = v.integer("qk_dim");
    const std::int64_t v_dim = v.integer("v_dim");
    const std::int64_t rotary = v.in(q + 2).shape[2];
    sizes = {.batch = v.in(q).shape[0],
             .seq = v.in(q).shape[1],
             .heads = v.integer("heads"),
             .kv_heads = v.integer("heads"),
             .head_dim = devices::latent_head_dim(qk_dim, v_dim)};
    heads = {.rows = sizes.batch * sizes.seq,
             .heads = sizes.heads,
             .plain = qk_dim - rotary,
             .rotary = rotary,
             .v_dim = v_dim,
             .head_dim = sizes.head_dim};
    flash = {.batch = sizes.batch,
             .seq = sizes.seq,
             .heads = sizes.heads,
             .kv_heads = sizes.heads,
             .head_dim = sizes.head_dim,
             .rules = {.scale = scale_of(v, qk_dim)}};
  }
  [[nodiscard]] std::int64_t element_bytes() const { return static_cast<std::int64_t>(core::size_of(dtype)); }
  [[nodiscard]] std::int64_t result_rows() const { return heads.rows * heads.heads; }

  /// Bytes of packed rows, and of padded results.
  [[nodiscard]] std::int64_t packed() const { return devices::latent_packed_bytes(sizes, element_bytes()); }
  [[nodiscard]] std::int64_t padded() const { return devices::latent_padded_bytes(sizes, element_bytes()); }
};

/// Whether it is that of q, kv and rotary alone, which sees all keys of a whole text.
bool is_computed(const OpView& v, std::size_t q) {
  return v.op.inputs.size() == q + 3 && !v.op.attrs.has("window") && !v.op.attrs.has("parts") &&
         is_storage(v.in(q).dtype) && v.inputs_are({q + 1, q + 2}, v.in(q).dtype) &&
         devices::latent_head_dim(v.integer("qk_dim"), v.integer("v_dim")) <= kMaxHeadDim;
}

void* behind(void* data, std::int64_t bytes) { return static_cast<std::byte*>(data) + bytes; }

}  // namespace

/// Inputs: q, kv, rotary. Outputs: y, lse.
Kernel make_latent_attention(const OpView& v) {
  if (!is_computed(v, 0) || !v.outputs_are({0}, v.in(0).dtype) || !v.outputs_are({1}, DType::f32)) return {};
  const Latent l(v, 0);
  const std::int64_t bytes = devices::latent_attention_bytes(l.sizes, l.element_bytes(), false);
  void* qkv = v.context->scratch(static_cast<std::size_t>(bytes));
  void* padded = behind(qkv, l.packed());
  const auto run = [=, context = v.context,
                    products = program::fp32_products_of(v.op)](const KernelArgs& args) {
    launch_pack_latent(context->stream(), l.dtype, l.heads, args.in[0], args.in[1], args.in[2], qkv);
    launch_flash_attention(context->stream(), l.dtype, l.flash, qkv, padded, floats(args.out[1]), products);
    launch_resize_rows(context->stream(), l.dtype, l.result_rows(), l.heads.head_dim, l.heads.v_dim, padded,
                       args.out[0]);
  };
  return {run, {.workspace_bytes = bytes, .launches = 3}};
}

/// Inputs: dy, y, lse, q, kv, rotary. Outputs: dq, dkv, drotary.
Kernel make_latent_attention_backward(const OpView& v) {
  constexpr std::size_t kFirst = 3;
  const DType dtype = v.in(kFirst).dtype;
  if (!is_computed(v, kFirst) || !v.inputs_are({0, 1}, dtype) || !v.inputs_are({2}, DType::f32) ||
      !v.outputs_are({0, 1, 2}, dtype)) {
    return {};
  }
  const Latent l(v, kFirst);
  const std::int64_t bytes = devices::latent_attention_bytes(l.sizes, l.element_bytes(), true);
  void* qkv = v.context->scratch(static_cast<std::size_t>(bytes));
  void* dqkv = behind(qkv, l.packed());
  void* dy = behind(dqkv, l.packed());
  void* y = behind(dy, l.padded());
  void* workspace = behind(y, l.padded());
  const Fp32Products products = program::fp32_products_of(v.op);
  const auto run = [=, context = v.context](const KernelArgs& args) {
    const auto pad = [&](const void* from, void* to) {
      launch_resize_rows(context->stream(), l.dtype, l.result_rows(), l.heads.v_dim, l.heads.head_dim, from,
                         to);
    };
    launch_pack_latent(context->stream(), l.dtype, l.heads, args.in[kFirst], args.in[kFirst + 1],
                       args.in[kFirst + 2], qkv);
    pad(args.in[0], dy);
    pad(args.in[1], y);
    launch_flash_attention_backward(context->stream(), l.dtype, l.flash, dy, qkv, y, floats(args.in[2]), dqkv,
                                    workspace, products);
    launch_unpack_latent(context->stream(), l.dtype, l.heads, dqkv, args.out[0], args.out[1], args.out[2]);
  };
  constexpr std::int64_t kOfOperands = 5;  // three before, two after
  const std::int64_t of_flash = runs_on_tensor_cores(dtype, l.flash, products) ? 2 : 3;
  return {run, {.workspace_bytes = bytes, .launches = kOfOperands + of_flash}};
}

/// Inputs: latent, rotary [, slots], latents, keys. Outputs: latents, keys.
Kernel make_append_latents(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1}, dtype) || !v.outputs_are({0, 1}, dtype)) return {};
  constexpr std::size_t kWithSlots = 5;
  const bool has_slots = v.op.inputs.size() == kWithSlots;
  const auto run = [has_slots, context = v.context, dtype, latent = v.in(0).shape, rotary = v.in(1).shape,
                    positions = v.out(0).shape[2]](const KernelArgs& args) {
    const std::int32_t* slots = has_slots ? ids(args.in[2]) : nullptr;
    for (const std::size_t i : {0U, 1U}) {
      const core::Shape& rows = i == 0 ? latent : rotary;
      launch_append_rows(context->stream(), dtype, rows[0], rows[1], positions, rows[2], args.in[i], slots,
                         args.out[i]);
    }
  };
  return {run, {.launches = 2}};
}

/// Inputs: q, latent, rotary, first, w, latents, keys. Outputs: y, latents, keys.
Kernel make_decode_latent_attention(const OpView& v) {
  const DType dtype = v.in(0).dtype;
  if (!is_storage(dtype) || !v.inputs_are({1, 2, 4}, dtype) || !v.outputs_are({0, 1, 2}, dtype)) return {};
  const std::int64_t qk_dim = v.integer("qk_dim");
  const std::int64_t rotary = v.in(2).shape[2];
  const LatentDecode shape{.batch = v.in(0).shape[0],
                           .heads = v.integer("heads"),
                           .plain = qk_dim - rotary,
                           .rotary = rotary,
                           .v_dim = v.integer("v_dim"),
                           .rank = v.in(1).shape[2],
                           .positions = v.out(1).shape[2],
                           .scale = scale_of(v, qk_dim)};
  return [context = v.context, dtype, shape](const KernelArgs& args) {
    LatentDecode decode = shape;
    decode.q = args.in[0];
    decode.latent = args.in[1];
    decode.rotary_key = args.in[2];
    decode.first = ids(args.in[3]);
    decode.w = args.in[4];
    decode.y = args.out[0];
    decode.latents = args.out[1];
    decode.keys = args.out[2];
    launch_decode_latent_attention(context->stream(), dtype, decode);
  };
}

MakerRows latent_attention_rows() {
  namespace ops = program::ops;
  return {{&ops::kLatentAttention, make_latent_attention, "latent_attention"},
          {&ops::kLatentAttentionBackward, make_latent_attention_backward, "latent_attention_backward"},
          {&ops::kAppendLatents, make_append_latents, "append_rows"},
          {&ops::kDecodeLatentAttention, make_decode_latent_attention, "decode_latent_attention"}};
}

}  // namespace rooflm::backends::cuda
