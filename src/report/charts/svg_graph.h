// The graph of a model as SVG.
#pragma once

#include <string>

#include "report/charts/chart.h"

namespace rooflm::report {

/// Blocks from top to bottom with their figures in columns, frames around those that belong together, arrows
/// beside them. `chart.graph` is set.
std::string svg_of_graph(const Chart& chart);

}  // namespace rooflm::report
