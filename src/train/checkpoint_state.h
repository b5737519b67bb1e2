// state.json of a checkpoint (for this room's sources).
#pragma once

#include <string>

namespace rooflm::train {

struct CheckpointState;

/// The text of state.json; checkpoint.h reads it back.
std::string state_json(const CheckpointState& state);

}  // namespace rooflm::train
