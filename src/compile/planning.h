// Planning of a step that can be left.
#pragma once

#include <cstdint>
#include <functional>

#include "compile/recipe.h"

namespace rooflm::compile {

/// As program_of. `between_passes` is called between two passes of a training step, of which one takes
/// seconds where there are millions of ops; what it throws leaves planning.
program::Program program_of(RunPhase phase, const model::ModelConfig& config, std::int64_t batch,
                            std::int64_t seq, const StepOptions& options,
                            const std::function<void()>& between_passes);

}  // namespace rooflm::compile
