// adamw, with moments as wide as what is computed, of 16 bits or of 8.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "backends/cpu/reference/arrays.h"
#include "backends/cpu/reference/operand.h"
#include "backends/cpu/reference/update_step.h"
#include "core/dynamic_8bit.h"
#include "program/ops.h"

namespace rooflm::backends::cpu::reference {
namespace {

template <class C>
using Piece = std::array<C, kPiece>;
static_assert(kPiece % core::kBlock8 == 0, "pieces are whole blocks");

/// Moments that are computed where they are.
template <class C>
struct WholeMoments {
  using Compute = C;
  static constexpr std::size_t kTensors = 1;

  C* load(void* const* at, std::int64_t i, std::int64_t /*n*/, bool /*is_signed*/, Piece<C>& /*to*/) const {
    return static_cast<C*>(at[0]) + i;
  }
  void store(void* const* /*at*/, std::int64_t /*i*/, std::int64_t /*n*/, bool /*is_signed*/,
             const Piece<C>& /*from*/, std::uint32_t /*step*/) const {}
};

/// Rounds up or down at random, up with the probability that keeps the mean: a moment that changes by less
/// than half a unit would otherwise never change. The number is a hash of the value, its place and the step,
/// so a run that is resumed gets the same. Without branches, so loops of it are vectorised.
core::Bf16 rounded_at_random(float value, std::int64_t place, std::uint32_t step) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  std::uint64_t hash = (static_cast<std::uint64_t>(place) << 32U) ^ bits ^ (std::uint64_t{step} << 13U);
  hash = (hash ^ (hash >> 33U)) * 0xff51afd7ed558ccdULL;
  hash = (hash ^ (hash >> 33U)) * 0xc4ceb9fe1a85ec53ULL;
  constexpr std::uint32_t kInfinity = 0x7f800000U, kQuiet = 0x400000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t more = magnitude < kInfinity ? static_cast<std::uint32_t>((hash >> 40U) & 0xffffU) : 0U;
  const std::uint32_t quiet = magnitude > kInfinity ? kQuiet : 0U;  // NaN stays NaN
  core::Bf16 result;
  result.bits = static_cast<std::uint16_t>(((bits | quiet) + more) >> 16U);
  return result;
}

/// Moments of bf16, one tensor each.
struct HalfMoments {
  using Compute = float;
  static constexpr std::size_t kTensors = 1;

  float* load(void* const* at, std::int64_t i, std::int64_t n, bool /*is_signed*/, Piece<float>& to) const {
    const auto* from = static_cast<const core::Bf16*>(at[0]) + i;
    for (std::int64_t k = 0; k < n; ++k) to[static_cast<std::size_t>(k)] = static_cast<float>(from[k]);
    return to.data();
  }
  void store(void* const* at, std::int64_t i, std::int64_t n, bool /*is_signed*/, const Piece<float>& from,
             std::uint32_t step) const {
    auto* to = static_cast<core::Bf16*>(at[0]) + i;
    for (std::int64_t k = 0; k < n; ++k)
      to[k] = rounded_at_random(from[static_cast<std::size_t>(k)], i + k, step);
  }
};

/// Moments of 8 bits: a tensor of codes, and one of the blocks' largest magnitudes.
struct BlockMoments {
  using Compute = float;
  static constexpr std::size_t kTensors = 2;
  core::Dynamic8Bit with_sign{true}, positive{false};

  float* load(void* const* at, std::int64_t i, std::int64_t n, bool is_signed, Piece<float>& to) const {
    const core::Dynamic8Bit& kind = is_signed ? with_sign : positive;
    const auto* codes = static_cast<const std::uint8_t*>(at[0]) + i;
    const auto* sizes = static_cast<const float*>(at[1]);
    for (std::int64_t first = 0; first < n; first += core::kBlock8) {
      const float size = sizes[(i + first) / core::kBlock8];
      const std::int64_t end = std::min(n, first + core::kBlock8);
      for (std::int64_t k = first; k < end; ++k)
        to[static_cast<std::size_t>(k)] = size * kind.value(codes[k]);
    }
    return to.data();
  }
  void store(void* const* at, std::int64_t i, std::int64_t n, bool is_signed, const Piece<float>& from,
             std::uint32_t /*step*/) const {
    const core::Dynamic8Bit& kind = is_signed ? with_sign : positive;
    auto* codes = static_cast<std::uint8_t*>(at[0]) + i;
    auto* sizes = static_cast<float*>(at[1]);
    alignas(64) std::array<float, core::kBlock8> shares{};
    for (std::int64_t first = 0; first < n; first += core::kBlock8) {
      const std::int64_t count = std::min(core::kBlock8, n - first);
      const auto values = array(from.data() + first, count);
      const float size = values.abs().maxCoeff();
      sizes[(i + first) / core::kBlock8] = size;
      array(shares.data(), count) = values / (size > 0 ? size : 1.0F);
      for (std::int64_t k = 0; k < count; ++k)
        codes[first + k] = kind.code(shares[static_cast<std::size_t>(k)]);
    }
  }
};

template <class Moments>
Kernel make_with(const OpView& v) {
  using C = typename Moments::Compute;
  const auto& attrs = v.op.attrs;
  const Average<C> first_of(attrs.number("beta1"));
  const Average<C> second_of(attrs.number("beta2"));
  const C eps = static_cast<C>(attrs.number("eps"));
  return [=, tensors = Tensors<C>(v), moments = Moments()](const KernelArgs& args) {
    const Step step = tensors.step(args);
    if (step.is_skipped) return;
    const C kept = static_cast<C>(1 - step.lr * tensors.decay);
    const C rate = static_cast<C>(step.lr / step.correction1);
    const C inverse2 = static_cast<C>(1 / step.correction2);
    const C clip = static_cast<C>(step.clip);
    const auto salt = std::bit_cast<std::uint32_t>(static_cast<float>(step.correction2));
    for (std::size_t tensor = 0; tensor < tensors.sizes.size(); ++tensor) {
      void* const* const first = &args.out[tensors.moment_out(tensor, 0)];
      void* const* const second = first + Moments::kTensors;
      for_pieces(tensors.sizes[tensor], [&](std::int64_t i, std::int64_t n) {
        alignas(64) Piece<C> m, s;
        auto ms = array(moments.load(first, i, n, true, m), n);
        auto ss = array(moments.load(second, i, n, false, s), n);
        const auto gs = array(tensors.gradient(tensor, args, i, n), n);
        ms = first_of.beta * ms + first_of.rest * (clip * gs);
        ss = second_of.beta * ss + second_of.rest * (clip * gs).square();
        tensors.update(tensor, args, i, n,
                       [&](auto& ps) { ps = kept * ps - rate * ms / ((inverse2 * ss).sqrt() + eps); });
        moments.store(first, i, n, true, m, salt);
        moments.store(second, i, n, false, s, salt);
      });
    }
  };
}

/// Weights are fp32, and so are the sizes of blocks.
bool are_narrow(const OpView& v, DType first, DType second) {
  const program::UpdateOperands at(v.op);
  for (std::size_t i = 0; i < at.count(); ++i) {
    if (v.in(at.weight_in(i)).dtype != DType::f32) return false;
    for (std::size_t k = 0; k < at.moments(); ++k) {
      if (v.in(at.moment_in(i, k)).dtype != (k % 2 == 0 ? first : second)) return false;
    }
  }
  return true;
}

}  // namespace

Kernel make_adamw(const OpView& v) {
  if (are_narrow(v, DType::bf16, DType::bf16)) return make_with<HalfMoments>(v);
  return with_compute_type(v, [&]<class C>(C) -> Kernel {
    return state_is_computed<C>(v) ? make_with<WholeMoments<C>>(v) : Kernel();
  });
}

Kernel make_adamw_8bit(const OpView& v) {
  return are_narrow(v, DType::i32, DType::f32) ? make_with<BlockMoments>(v) : Kernel();
}

MakerRows adamw_rows() {
  namespace ops = program::ops;
  return {{&ops::kAdamW, make_adamw, "reference::adamw"},
          {&ops::kAdamW8Bit, make_adamw_8bit, "reference::adamw_8bit"}};
}

}  // namespace rooflm::backends::cpu::reference
