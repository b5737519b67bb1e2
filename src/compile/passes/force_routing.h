// Experts that the host chooses, so that steps with equal loads can be timed.
#pragma once

#include <cstdint>

#include "core/named.h"
#include "program/program.h"

namespace rooflm::passes {

using core::name_of;

/// Which experts the tokens of a measured step take: those of the model's scores, all equally many tokens, or
/// experts at random.
enum class Routing : std::uint8_t { learned, balanced, random };
constexpr auto names_of(Routing) {
  return core::named<Routing>(
      "routing",
      {{Routing::learned, "learned"}, {Routing::balanced, "balanced"}, {Routing::random, "random"}});
}

/// The input of those experts, [N, K] int32, for all layers.
inline constexpr const char* kRoutingInput = "routing";

/// Each `dispatch` of a forward pass reads the input instead of the choice of `route`, which runs as before:
/// its weights are those of the experts of the highest scores, so that losses and gradients mean nothing.
void force_routing(program::Program& forward);

/// Each expert of a forward pass takes at most `factor` times the mean number of rows, the first ones; the
/// other choices are dropped: they add nothing to their tokens. Shapes stay. Throws core::UsageError if there
/// are no experts.
void limit_experts(program::Program& forward, double factor);

}  // namespace rooflm::passes
