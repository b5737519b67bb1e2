// What a step has only where somebody asks for it: a device whose kernels profit, a framework that works so,
// or an option.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace rooflm::compile {

/// Passes, and choices of passes. Their names are those of the enumerators: data/devices.json and
/// data/frameworks.json list them.
enum class Rewrite : std::uint8_t {
  compact_state,      ///< fused, 16 bits: weights as halves, 16-bit gradients where none accumulate
  gelu_in_epilogue,   ///< fused: passes::FuseOptions
  bias_in_gradients,  ///< fused: passes::FuseOptions
  early_norm,         ///< fused, clipping: squares of gradients are summed while the backward pass runs
  rebuild,            ///< fused: gradients of norms and activations write their outputs again
  sum_in_update,      ///< fused, data-parallel ranks: updates read the gradients of their peers
  // Only for plans of other frameworks (compile/planned/).
  unfused_loss,      ///< fp32, not chunked
  row_copies,        ///< around collectives of sequence-parallel ranks
  dropout,           ///< as in Megatron-LM
  fp8_own_scales,    ///< fp8: scales of this step, so that each tensor is read for its largest value
  fp8_casts_apart,   ///< fp8: casts are never fused into the producer
  fp8_gathers,       ///< fp8: tensor-parallel ranks exchange fp8 rows
  fp8_parameters,    ///< fp8: layer weights exist only in fp8
  async_tensor,      ///< tensor-parallel matmuls overlap their exchange
  gradient_sums,     ///< micro-batches accumulate by separate additions
  separate_matmuls,  ///< q, k, v, gate and up are separate matmuls
  gather_again,      ///< sequence-parallel ranks keep only their own rows
  reduce_early,      ///< sums of a layer's input gradient overlap its weight gradient
  half_gradients,    ///< weight gradients in the compute dtype, including sums over micro-batches
  gathered_ring,     ///< passes::RingKind::gathered
  whole_recompute,   ///< recompute `full` also recomputes what nothing reads
  fp8_experts,       ///< fp8: grouped matmuls of experts, too
  half_states        ///< weights, their gradients and moments in the compute dtype, without fp32 masters
};

/// A set of them.
class Rewrites {
 public:
  constexpr Rewrites() = default;
  constexpr Rewrites(std::initializer_list<Rewrite> all) {
    for (const Rewrite one : all) set(one);
  }
  [[nodiscard]] constexpr bool has(Rewrite one) const { return (bits_ & bit(one)) != 0; }
  constexpr void set(Rewrite one, bool is_on = true) { bits_ = is_on ? bits_ | bit(one) : bits_ & ~bit(one); }
  constexpr Rewrites operator|(Rewrites other) const {
    other.bits_ |= bits_;
    return other;
  }
  bool operator==(const Rewrites&) const = default;

 private:
  static constexpr std::uint32_t bit(Rewrite one) { return 1U << static_cast<unsigned>(one); }
  std::uint32_t bits_ = 0;
};

std::string_view name_of(Rewrite rewrite);
/// Throws core::UsageError with a suggestion.
Rewrites parse_rewrites(std::span<const std::string> names);

}  // namespace rooflm::compile
