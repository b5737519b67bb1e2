// Overlaps collectives with computation.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Moves collectives to the lane `communication`, but for barriers and those with the attribute `mapped`, and
/// gives each op the waits that its operands need (reads after writes and writes after reads across lanes). A
/// barrier waits for everything before it. The last `compute` op waits for everything that nothing else waits
/// for. Sets Op::waits, so it is the last rewrite of a program.
void overlap_collectives(program::Program& step);
/// Only the waits, of ops whose lanes are set.
void set_waits(program::Program& step);

}  // namespace rooflm::passes
