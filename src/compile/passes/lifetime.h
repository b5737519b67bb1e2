// Lifetimes of tensors, counted in ops of a program.
#pragma once

namespace rooflm::passes {

/// The first op that writes a tensor, and the last op that touches it or may still overlap others while doing
/// so. Indices into Program::ops; both -1 if no op touches it.
struct Lifetime {
  int first = -1;
  int last = -1;
  bool operator==(const Lifetime&) const = default;
};

}  // namespace rooflm::passes
