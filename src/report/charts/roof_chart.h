// The roofs of a log-log roofline picture.
#pragma once

#include "report/charts/chart.h"
#include "report/model/run_data.h"

namespace rooflm::report {

/// Adds the roofs to a chart of points (x: flop/byte, y: flop/s): a rising line per level of memory, a level
/// one per arithmetic rate, as far as the points and the ridges reach. Nothing without points or ceilings.
void add_roofs(const RunData& run, Chart& chart);

}  // namespace rooflm::report
