// Products of layers that read fp8.
#pragma once

#include <cstdint>
#include <string_view>

#include "program/program.h"

namespace rooflm::passes {

/// Where a tensor's scale comes from: its largest magnitudes in the steps before, or itself, which is then
/// read once more.
enum class Fp8Scaling : std::uint8_t { delayed, current };
std::string_view name_of(Fp8Scaling scaling);
/// Throws core::UsageError with a suggestion, as the other parsers here.
Fp8Scaling parse_fp8_scaling(std::string_view name);

/// The format that gradients are rounded to; activations and weights always are e4m3.
enum class Fp8Gradients : std::uint8_t { e4m3, e5m2 };
std::string_view name_of(Fp8Gradients gradients);
Fp8Gradients parse_fp8_gradients(std::string_view name);

/// Which products may add up in fewer bits than fp32 has: those of the forward pass, all, or none.
enum class Fp8FastSums : std::uint8_t { forward, all, none };
std::string_view name_of(Fp8FastSums sums);
Fp8FastSums parse_fp8_fast_sums(std::string_view name);

/// Weights are cast once, and their transposed copies kept for the backward pass (a byte of each weight of
/// layers); or once in each pass, which reads them once more.
enum class Fp8Weights : std::uint8_t { keep, recast };
std::string_view name_of(Fp8Weights weights);
Fp8Weights parse_fp8_weights(std::string_view name);

struct Fp8Options {
  Fp8Gradients gradients = Fp8Gradients::e4m3;
  Fp8Scaling scaling = Fp8Scaling::delayed;
  Fp8FastSums fast_sums = Fp8FastSums::forward;
  Fp8Weights weights = Fp8Weights::recast;
  /// Activations are kept in 16 bits and cast in each pass that reads them, as torchao does it.
  bool recast_activations = false;
  /// GEMMs read either layout, so each tensor has one copy in fp8.
  bool any_layout = false;
  /// Casts join the op that makes what they cast, where nobody else reads that: swiglu and its gradient.
  bool fuse = false;
  bool operator==(const Fp8Options&) const = default;
};

/// Of a bf16 step: the products of layers (forward, and both of the backward pass) read fp8 copies of their
/// operands, both along k, as fp8 GEMMs of NVIDIA GPUs want them. A tensor is cast once (but see Fp8Weights),
/// in one op that makes the copies of both layouts that products read (program/fp8.h). Embedding, head,
/// norms, softmax, attention and loss stay as they are, and so do results, and products whose extents are not
/// all multiples of 16. What only products read need not be kept in bf16. Scales are the state "fp8_scales",
/// one slot for each operand of a product by its scope, so that micro-batches and what is recomputed share
/// them; with current scaling they belong to the cast. Runs before lanes are set.
void fp8_products(program::Program& step, const Fp8Options& options);

/// With delayed scaling: the op that makes the scales of the next step, behind all others. Does nothing to a
/// program without the state.
void append_fp8_scales(program::Program& step, const Fp8Options& options);

}  // namespace rooflm::passes
