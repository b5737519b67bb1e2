// The matmuls of layers read fp8.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/named.h"
#include "core/options.h"
#include "program/program.h"

namespace rooflm::passes {

using core::name_of;

/// Where a tensor's scale comes from. delayed: from its amax in the previous steps. current: from its own
/// amax, which costs another read of the tensor.
enum class Fp8Scaling : std::uint8_t { delayed, current };
constexpr auto names_of(Fp8Scaling) {
  return core::named<Fp8Scaling>("scaling",
                                 {{Fp8Scaling::delayed, "delayed"}, {Fp8Scaling::current, "current"}});
}

/// The format of gradients; activations and weights are always e4m3.
enum class Fp8Gradients : std::uint8_t { e4m3, e5m2 };
constexpr auto names_of(Fp8Gradients) {
  return core::named<Fp8Gradients>("format", {{Fp8Gradients::e4m3, "e4m3"}, {Fp8Gradients::e5m2, "e5m2"}});
}

/// Which matmuls may accumulate in fewer bits than fp32 (cuBLASLt's fast accumulation).
enum class Fp8FastSums : std::uint8_t { forward, all, none };
constexpr auto names_of(Fp8FastSums) {
  return core::named<Fp8FastSums>(
      "choice of fast sums",
      {{Fp8FastSums::forward, "forward"}, {Fp8FastSums::all, "all"}, {Fp8FastSums::none, "none"}});
}

/// keep: weights are cast once, and their transposed copies are kept for the backward pass (one byte per
/// layer weight). recast: weights are cast in the forward and again in the backward pass.
enum class Fp8Weights : std::uint8_t { keep, recast };
constexpr auto names_of(Fp8Weights) {
  return core::named<Fp8Weights>("choice of weights",
                                 {{Fp8Weights::keep, "keep"}, {Fp8Weights::recast, "recast"}});
}

struct Fp8Options {
  Fp8Gradients gradients = Fp8Gradients::e4m3;
  Fp8Scaling scaling = Fp8Scaling::delayed;
  Fp8FastSums fast_sums = Fp8FastSums::forward;
  Fp8Weights weights = Fp8Weights::recast;
  /// Activations are kept in 16 bits and cast in each pass that reads them, recomputed matmuls included, as
  /// torchao does.
  bool recast_activations = false;
  /// GEMMs read either layout, so each tensor has one fp8 copy.
  bool any_layout = false;
  /// Casts are fused into the op that produces their input (swiglu, its gradient, norms) if nothing else
  /// reads it.
  bool fuse = false;
  bool operator==(const Fp8Options&) const = default;
};
template <core::MaybeConst<Fp8Options> T, class Visit>
void visit_options(T& options, const Visit& visit) {
  visit("fp8_gradients", options.gradients);
  visit("fp8_scaling", options.scaling);
  visit("fp8_fast_sums", options.fast_sums);
  visit("fp8_weights", options.weights);
}

/// Rewrites a bf16 step: the matmuls of layers (forward, and both of the backward pass) read fp8 copies of
/// their operands. NVIDIA's fp8 GEMMs want both operands contiguous along k, so one cast op makes the copies
/// in all layouts that matmuls read (program/fp8.h). A tensor is cast once, but see Fp8Weights. Embedding,
/// head, norms, softmax, attention and loss do not change, and neither do results, nor matmuls with an extent
/// that is not a multiple of 16. Tensors that only matmuls read need not be kept in bf16.
///
/// Scales are in the state tensor "fp8_scales", one slot per operand and matmul scope, so micro-batches and
/// recomputed ops share slots; with current scaling they belong to the cast. Runs before lanes are set.
void fp8_matmuls(program::Program& step, const Fp8Options& options);

/// With delayed scaling: appends the op that computes the scales of the next step, after all others. Does
/// nothing if the program has no such state.
void append_fp8_scales(program::Program& step, const Fp8Options& options);

}  // namespace rooflm::passes
