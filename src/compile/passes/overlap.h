// Collectives beside computation.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Gives collectives the lane `communication`, and each op the waits that its operands need: for what another
/// lane writes and it reads, and for what another lane still reads and it writes. The last op of the lane
/// `compute` waits for what nothing else does. The last rewrite of a program: it sets Op::waits.
void overlap_collectives(program::Program& step);
/// Only the waits, of ops whose lanes are set.
void set_waits(program::Program& step);

}  // namespace rooflm::passes
