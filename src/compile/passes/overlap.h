// Overlaps collectives with computation.
#pragma once

#include "program/program.h"

namespace rooflm::passes {

/// Moves collectives to the lane `communication`, but for barriers and those with the attribute `mapped`, and
/// gives each op the waits that its operands need (reads after writes and writes after reads across lanes). A
/// barrier waits for everything before it. The last `compute` op waits for everything that nothing else waits
/// for. `frees_gradients`: `compute` also waits for each reduce-scatter of gradients once it has submitted
/// the next one, so that whole gradients of at most two units are held at a time; otherwise nothing may wait
/// for them before the optimizer. Sets Op::waits, so it is the last rewrite of a program.
void overlap_collectives(program::Program& step, bool frees_gradients);
/// Only the waits, of ops whose lanes are set: reduce-scatters of gradients are all on one.
void set_waits(program::Program& step, bool frees_gradients = false);

}  // namespace rooflm::passes
