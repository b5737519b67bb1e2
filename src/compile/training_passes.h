// The passes of a training step, in their order. Private to the room.
#pragma once

#include <span>
#include <string_view>

#include "compile/recipe.h"

namespace rooflm::compile {

/// A step in the making, and what passes tell later ones.
struct Making {
  program::Program step{};
  passes::SharedWeights shared{};
  passes::Stage stage{};
  program::GradientMap gradients{};
};

struct Pass {
  std::string_view name{};
  bool (*applies)(const StepOptions& options) = nullptr;
  void (*run)(Making& making, const StepOptions& options) = nullptr;
};

/// The first kForwardPasses of them make the forward pass of one rank, which steps can share (rank_forward).
std::span<const Pass> training_passes();
inline constexpr std::size_t kForwardPasses = 3;

/// What the forward-only program of `inference_step` shares with training.
bool is_split(const StepOptions& options);
bool is_fused(const StepOptions& options);
bool is_compact(const StepOptions& options);
/// `op` becomes part of micro-batch `index`; `count` of them on each of `ranks` ranks form the step's batch.
void give_share(program::Op& op, int index, int count, int ranks);
void chunk_loss(program::Program& step, const StepOptions& options);
void mark_products(program::Program& program, const StepOptions& options);
passes::Fp8Options fp8_options(const StepOptions& options);

}  // namespace rooflm::compile
