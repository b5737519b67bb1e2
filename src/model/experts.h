// Emits a layer of experts.
#pragma once

#include "model/config.h"
#include "program/builder.h"

namespace rooflm::model {

/// Weights of one layer: router [E, C], fc1 [E, 2F, C] (gate over up), fc2 [E, C, F].
struct ExpertWeights {
  program::TensorId router, fc1, fc2;
};

/// y [.., C] of x [.., C]: the weighted sum over the experts of each token, without those that all tokens
/// take. The scopes are "router", "fc1", "act" and "fc2", within the current one.
program::TensorId write_experts(program::Builder& builder, const Experts& experts, program::TensorId x,
                                const ExpertWeights& weights);

}  // namespace rooflm::model
