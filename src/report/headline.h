// A run in two sentences: how long a step takes and how sure that is, what binds it, what could be won first.
#pragma once

#include <string>

#include "report/advice.h"
#include "report/run_data.h"

namespace rooflm::report {

/// "A step takes 15.3 ms (95% sure: 15.1 to 15.6 ms, 20 steps); arithmetic binds 62.0% of the time in
/// kernels. The largest possible gain is 4.2 ms (27.1%), in h.*/attention/qk: try --attention flash." Parts
/// that the record does not hold are left out; "" without a time.
std::string headline_of(const RunData& run, const std::vector<Advice>& advice);

}  // namespace rooflm::report
