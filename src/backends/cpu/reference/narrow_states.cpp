// adamw with moments of 16 or 8 bits.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/producers.h"
#include "backends/cpu/reference/update_step.h"
#include "core/dynamic_8bit.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

using Piece = std::array<float, kPiece>;
static_assert(kPiece % core::kBlock8 == 0, "pieces are whole blocks");

/// Rounds up or down at random, up with the probability that keeps the mean: a moment that changes by less
/// than half a unit would otherwise never change. The number is a hash of the value, its place and the step,
/// so a run that is resumed gets the same.
core::Bf16 rounded_at_random(float value, std::int64_t place, std::uint32_t step) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (!std::isfinite(value)) return core::Bf16(value);
  std::uint64_t hash = (static_cast<std::uint64_t>(place) << 32U) ^ bits ^ (std::uint64_t{step} << 13U);
  hash = (hash ^ (hash >> 33U)) * 0xff51afd7ed558ccdULL;
  hash = (hash ^ (hash >> 33U)) * 0xc4ceb9fe1a85ec53ULL;
  core::Bf16 result;
  result.bits =
      static_cast<std::uint16_t>((bits + static_cast<std::uint32_t>((hash >> 40U) & 0xffffU)) >> 16U);
  return result;
}

/// Moments of bf16, one tensor each.
struct HalfMoments {
  static constexpr std::size_t kTensors = 1;

  void load(const void* const* at, std::int64_t i, std::int64_t n, bool /*is_signed*/, Piece& to) const {
    const auto* from = static_cast<const core::Bf16*>(at[0]) + i;
    for (std::int64_t k = 0; k < n; ++k) to[static_cast<std::size_t>(k)] = static_cast<float>(from[k]);
  }
  void store(void* const* at, std::int64_t i, std::int64_t n, bool /*is_signed*/, const Piece& from,
             std::uint32_t step) const {
    auto* to = static_cast<core::Bf16*>(at[0]) + i;
    for (std::int64_t k = 0; k < n; ++k)
      to[k] = rounded_at_random(from[static_cast<std::size_t>(k)], i + k, step);
  }
};

/// Moments of 8 bits: a tensor of codes, and one of the blocks' largest magnitudes.
struct BlockMoments {
  static constexpr std::size_t kTensors = 2;
  core::Dynamic8Bit with_sign{true}, positive{false};

  void load(const void* const* at, std::int64_t i, std::int64_t n, bool is_signed, Piece& to) const {
    const core::Dynamic8Bit& kind = is_signed ? with_sign : positive;
    const auto* codes = static_cast<const std::uint8_t*>(at[0]) + i;
    const auto* sizes = static_cast<const float*>(at[1]);
    for (std::int64_t k = 0; k < n; ++k)
      to[static_cast<std::size_t>(k)] = sizes[(i + k) / core::kBlock8] * kind.value(codes[k]);
  }
  void store(void* const* at, std::int64_t i, std::int64_t n, bool is_signed, const Piece& from,
             std::uint32_t /*step*/) const {
    const core::Dynamic8Bit& kind = is_signed ? with_sign : positive;
    auto* codes = static_cast<std::uint8_t*>(at[0]) + i;
    auto* sizes = static_cast<float*>(at[1]);
    for (std::int64_t first = 0; first < n; first += core::kBlock8) {
      const std::int64_t count = std::min(core::kBlock8, n - first);
      const float size = array(from.data() + first, count).abs().maxCoeff();
      sizes[(i + first) / core::kBlock8] = size;
      for (std::int64_t k = first; k < first + count; ++k)
        codes[k] = kind.code(size > 0 ? from[static_cast<std::size_t>(k)] / size : 0.0F);
    }
  }
};

template <class Moments>
Kernel make_with(const OpView& v) {
  const auto& attrs = v.op.attrs;
  const double max_norm = attrs.number("max_norm");
  const auto beta1 = static_cast<float>(attrs.number("beta1"));
  const auto beta2 = static_cast<float>(attrs.number("beta2"));
  const auto rest1 = static_cast<float>(1 - attrs.number("beta1"));
  const auto rest2 = static_cast<float>(1 - attrs.number("beta2"));
  const auto eps = static_cast<float>(attrs.number("eps"));
  const double decay = attrs.number("weight_decay");
  return [=, tensors = Tensors<float>(v), moments = Moments()](const KernelArgs& args) {
    const Step step = read_step(tensors.hyper, tensors.norm, args, max_norm, tensors.is_scaled);
    if (step.is_skipped) return;
    const auto kept = static_cast<float>(1 - step.lr * decay);
    const auto rate = static_cast<float>(step.lr / step.correction1);
    const auto inverse2 = static_cast<float>(1 / step.correction2);
    const auto clip = static_cast<float>(step.clip);
    const auto salt = std::bit_cast<std::uint32_t>(static_cast<float>(step.correction2));
    for (std::size_t tensor = 0; tensor < tensors.sizes.size(); ++tensor) {
      void* const* const first = &args.out[tensors.moment_out(tensor, 0)];
      void* const* const second = first + Moments::kTensors;
      void* copy = tensors.copy_of(tensor, args);
      const std::int64_t count = tensors.sizes[tensor];
      for_pieces(count, [&](std::int64_t i, std::int64_t n) {
        alignas(64) Piece m, s;
        moments.load(first, i, n, true, m);
        moments.load(second, i, n, false, s);
        auto ms = array(m.data(), n);
        auto ss = array(s.data(), n);
        const auto gs = array(tensors.gradient(tensor, args, i, n), n);
        ms = beta1 * ms + rest1 * (clip * gs);
        ss = beta2 * ss + rest2 * (clip * gs).square();
        update_in_place<float>(tensors.weight_of(tensor, args), tensors.halves[tensor], count, i, n,
                               [&](float* p) {
                                 auto ps = array(p, n);
                                 ps = kept * ps - rate * ms / ((inverse2 * ss).sqrt() + eps);
                                 if (copy != nullptr)
                                   tensors.copy.write(copy, i, n, [&](float* to) { array(to, n) = ps; });
                               });
        moments.store(first, i, n, true, m, salt);
        moments.store(second, i, n, false, s, salt);
      });
    }
  };
}

}  // namespace

Kernel make_narrow_adamw(const OpView& v) {
  const program::UpdateOperands at(v.op);
  const bool is_8bit = v.op.is(program::ops::kAdamW8Bit);
  for (std::size_t i = 0; i < at.count(); ++i) {
    if (v.in(at.weight_in(i)).dtype != DType::f32) return {};
    for (std::size_t k = 0; k < at.moments(); ++k) {
      const DType expected = !is_8bit ? DType::bf16 : k % 2 == 0 ? DType::i32 : DType::f32;
      if (v.in(at.moment_in(i, k)).dtype != expected) return {};
    }
  }
  return is_8bit ? make_with<BlockMoments>(v) : make_with<HalfMoments>(v);
}

MakerRows narrow_states_rows() {
  return {{&program::ops::kAdamW8Bit, make_narrow_adamw, "reference::adamw_8bit"}};
}

}  // namespace rooflm::backends::cpu::reference
