// The figures that are quoted of a run: tokens per second, MFU, shares, peak memory.
#pragma once

#include <optional>

#include "report/run_data.h"

namespace rooflm::report {

/// Each is absent where the record does not hold what it is made of.
struct RunFigures {
  std::optional<double> step_s;                   ///< median of whole steps without observer
  std::optional<double> step_low_s, step_high_s;  ///< confidence interval of step_s
  std::optional<double> tokens_per_s;             ///< tokens of a step / step_s
  std::optional<double> model_flop_per_s;         ///< model_flop / step_s
  std::optional<double> peak_flop_per_s;          ///< what MFU divides by
  std::optional<double> mfu;                      ///< (6N + 12 L C T) per token, PaLM, appendix B
  std::optional<double> matmul_share;             ///< matrix-product FLOP counted op by op / step_s / peak
  std::optional<double> roof_s;                   ///< least time of the step by the ceilings
  std::optional<double> roof_share;               ///< roof_s / step_s
  std::optional<double> peak_bytes;               ///< measured where it was, else by plan
};

/// tokens: the fact of that name, else batch x seq x grad_accum.
RunFigures figures_of(const RunData& run);

}  // namespace rooflm::report
