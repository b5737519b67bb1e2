// The main figures of a run: tokens per second, MFU, shares, peak memory.
#pragma once

#include <optional>
#include <string>

#include "report/model/run_data.h"

namespace rooflm::report {

/// Each is absent if the record lacks its inputs.
struct RunFigures {
  std::optional<double> step_s;                   ///< median of whole steps without observer
  std::optional<double> step_low_s, step_high_s;  ///< confidence interval of step_s
  double step_coverage = 0;                       ///< of that interval: below 0.95 with fewer than 6 steps
  std::optional<double>
      traced_step_s;  ///< median of steps while a profiler watched; of our own runs only without step_s
  std::size_t traced_steps = 0;                ///< how many these are
  std::optional<double> tokens;                ///< of a step
  std::optional<double> tokens_per_s;          ///< tokens of a step / step_s
  std::optional<double> model_flop_per_s;      ///< model_flop / step_s
  std::optional<double> peak_flop_per_s;       ///< what MFU divides by: a sustained rate of matmuls
  std::string peak;                            ///< which peak that is: "sustained bf16 matmul, measured ..."
  std::optional<double> mfu;                   ///< (6N + 12 L C T) per token, PaLM, appendix B
  std::optional<double> datasheet_flop_per_s;  ///< the manufacturer's peak, if known
  std::optional<double> datasheet_mfu;         ///< MFU by that
  std::optional<double> matmul_flop_per_s;     ///< matmul FLOP counted op by op / step_s
  std::optional<double> matmul_share;          ///< matmul_flop_per_s / peak
  std::optional<double> roof_s;                ///< least time of the step by the ceilings
  std::optional<double> roof_share;            ///< roof_s / step_s
  std::optional<double> peak_bytes;            ///< measured where it was, else by plan
};

/// tokens: the fact of that name, else batch x seq x grad_accum x dp.
RunFigures figures_of(const RunData& run);

/// Ranks that share the model FLOP of a step: dp x cp x tp x pp, at least 1. Not an integer, since records
/// may hold any number.
double ranks_of_step(const RunData& run);

/// The average model FLOP of one rank per step, to compare with the peak of one device.
std::optional<double> model_flop_of_rank(const RunData& run);

/// What MFU divides by; nothing without a measured rate, and where that is no peak.
std::optional<double> peak_of(const RunData& run);
/// Why the rate that was measured is no peak, in one line: it is uncertain (record::why_uncertain), or the
/// step or one of its ops computes faster by more than the rate's interval. "" where it is one, or there is
/// none.
std::string why_no_peak(const RunData& run);

/// "sustained matmul bf16, measured 2026-11-20": the record's description of the peak in MFU, or what its
/// unit tells.
std::string peak_text(const RunData& run);

}  // namespace rooflm::report
