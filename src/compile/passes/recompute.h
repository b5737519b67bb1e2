// Activation recomputation: repeats parts of the forward pass in the backward pass instead of keeping
// outputs.
#pragma once

#include <string_view>

#include "core/named.h"
#include "program/program.h"

namespace rooflm::passes {

using core::name_of;

/// What is recomputed.
/// - none: nothing; everything that the backward pass needs is kept (on GPUs: but for rebuild.h).
/// - selective: ops with few FLOPs and much memory (norms, activations, attention scores and softmax;
/// Korthikanti et
///   al., 2022).
/// - every_other: also every second matmul of a layer, counted as q, k, v, out, gate, up, down, but not
/// attention
///   (torchtitan's `selective` with the option `op`, parallelisms/parallelize_llama.py). Packed matmuls: q, k
///   and v, of which one would be recomputed, are kept; gate and up, of which one would be, are recomputed in
///   every second layer.
/// - full: everything except each layer's input (Chen et al., 2016).
enum class Recompute : std::uint8_t { none, selective, every_other, full };
constexpr auto names_of(Recompute) {
  return core::named<Recompute>("recompute", {{Recompute::none, "none"},
                                              {Recompute::selective, "selective"},
                                              {Recompute::every_other, "every-other"},
                                              {Recompute::full, "full"}});
}

/// Inserts copies of the recomputed forward ops before the first backward op of each layer ("h.N"). They
/// carry `recomputed` and the phase backward. The results do not change. Run after differentiate. `is_whole`:
/// `full` recomputes a layer to its end, as frameworks do that rerun its forward function
/// (torch.utils.checkpoint with use_reentrant, Megatron-LM); otherwise ops whose outputs nothing reads are
/// skipped.
void recompute(program::Program& program, Recompute kind, bool is_whole = false);

}  // namespace rooflm::passes
