// What is found of a run, once: causes, a glance, advice, and the run in two sentences.
#pragma once

#include <string>
#include <vector>

#include "report/findings/advice.h"
#include "report/findings/glance.h"
#include "report/findings/why.h"
#include "report/model/run_data.h"

namespace rooflm::report {

struct Findings {
  std::vector<Advice> advice{};  ///< largest gain first
  std::vector<Why> why{};
  Glance glance{};
  /// "A step takes 15.3 ms (95% interval 15.1 ms to 15.6 ms, 20 steps); 62.0% of the time in kernels is bound
  /// by arithmetic. The largest possible gain is 4.2 ms (27.1%): h.*/attention/qk." Parts that the record
  /// lacks are left out, an interval of fewer than 6 steps as well; "" without a step time.
  std::string headline{};
};

/// `advice`: that of the run among the records that it is shown with.
Findings findings_of(const RunData& run, std::vector<Advice> advice);

}  // namespace rooflm::report
