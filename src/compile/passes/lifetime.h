// When something is alive, counted in the ops of a program.
#pragma once

namespace rooflm::passes {

/// First op that writes a tensor and last op that touches it, or may still run while others do, as indices
/// into Program::ops; both -1 when no op does.
struct Lifetime {
  int first = -1;
  int last = -1;
  bool operator==(const Lifetime&) const = default;
};

}  // namespace rooflm::passes
