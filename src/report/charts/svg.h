// Charts as SVG: one self-contained image, for Markdown and for files.
#pragma once

#include <string>

#include "report/charts/chart.h"

namespace rooflm::report {

/// The chart with title, axes with ticks and units, legend, and intervals where points have them. Points that
/// cannot be drawn (not finite; not positive on a log axis) are left out; when none is left the image says
/// so. Colours are told apart without colour vision and read on light and dark.
std::string svg_of(const Chart& given);

}  // namespace rooflm::report
