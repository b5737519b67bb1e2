// A run in two sentences: the step time with its interval, what bounds it, the largest possible gain.
#pragma once

#include <string>

#include "report/findings/advice.h"
#include "report/model/run_data.h"

namespace rooflm::report {

/// "A step takes 15.3 ms (95% interval 15.1 ms to 15.6 ms, 20 steps); 62.0% of the time in kernels is bound
/// by arithmetic. The largest possible gain is 4.2 ms (27.1%): h.*/attention/qk." Parts that the record lacks
/// are left out, an interval of fewer than 6 steps as well; "" without a step time.
std::string headline_of(const RunData& run, const std::vector<Advice>& advice);

}  // namespace rooflm::report
