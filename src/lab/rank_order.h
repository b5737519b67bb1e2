// Whether the collectives of a measured run overlap with computation, and their exposed time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "engines/engine.h"
#include "lab/job.h"
#include "lab/point.h"
#include "record/rows.h"
#include "record/writer.h"

namespace rooflm::lab {

/// Gives the engine the order that the point asks for, by a trial where it asks for none
/// (train::OverlapTrial): what came of it is a note, and a fact of the run. `before_step(i)`, i from 0,
/// writes the inputs of each step of the trial. All ranks call it; nothing happens where this process is
/// alone.
void choose_order(engines::Engine& engine, const Point& point, const Ranks& ranks, std::int64_t run,
                  record::Writer& record, const std::function<void(int step)>& before_step);

/// The median of what steps were exposed to; nothing of a step of one rank, and where a device runs
/// collectives, which does not tell.
std::optional<record::Fact> exposed_fact(const Point& point, std::span<const engines::StepTimes> steps);

}  // namespace rooflm::lab
