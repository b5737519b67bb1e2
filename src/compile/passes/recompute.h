// Trading time for memory: redoing parts of the forward pass in the backward pass instead of keeping them.
#pragma once

#include <string_view>

#include "program/program.h"

namespace rooflm::passes {

/// none: keep all that the backward pass needs. selective: redo what has little arithmetic and much memory
/// (norms, activations, attention scores and softmax; Korthikanti et al., 2022). every_other: redo every
/// second product of a layer as well, counted as q, k, v, out, gate, up, down, but not attention
/// (torchtitan's `selective` with the option `op`, parallelisms/parallelize_llama.py). Where products are
/// packed, q, k and v, of which one is redone, are kept, and gate and up, of which one is, are redone in
/// every second layer. full: keep each layer's input, redo the rest (Chen et al., 2016).
enum class Recompute : std::uint8_t { none, selective, every_other, full };
std::string_view name_of(Recompute kind);
/// Throws core::UsageError with a suggestion.
Recompute parse_recompute(std::string_view name);

/// Inserts, before the first backward op of each layer ("h.N"), copies of the forward ops whose outputs are
/// redone; they carry `recomputed` and the phase backward. Run after differentiate. The numbers do not
/// change. `is_whole`: `full` redoes a layer to its end, as frameworks do that run its forward function again
/// (torch.utils.checkpoint with use_reentrant, Megatron-LM); otherwise what nobody reads is not redone.
void recompute(program::Program& program, Recompute kind, bool is_whole = false);

}  // namespace rooflm::passes
