// Figures of a piece of work from its time and its roof: rates, shares, possible gain.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/model/run_data.h"
#include "report/model/summaries.h"

namespace rooflm::report {

/// Each is absent where a part of it is.
struct WorkFigures {
  double flop = 0;                   ///< of matmuls and the rest
  std::optional<double> intensity;   ///< flop per byte
  std::optional<double> flop_per_s;  ///< of work that has any flop
  std::optional<double> byte_per_s;
  std::optional<double> step_share;  ///< time / median step
  std::optional<double> roof_share;  ///< roof / time
  std::optional<double> gain_s;      ///< time - roof, the largest possible gain; 0 if the roof is higher
};

WorkFigures work_figures(const Work& work, const std::optional<double>& roof_s,
                         const std::optional<double>& time_s, const std::optional<double>& step_s);
/// Of a group of ops: by its own roof and device time, without the share of the step.
WorkFigures work_figures(const Work& work);
/// Of one op, by its device time.
WorkFigures work_figures(const TimedOp& op, const std::optional<double>& step_s);

/// A ceiling as a line of the roofline.
struct RoofLine {
  std::string name;  ///< "matmul fp32", "DRAM"
  double value = 0;  ///< flop/s or byte/s
};
struct RoofLines {
  std::vector<RoofLine> rates, bandwidths;  ///< highest first
};
/// The highest ceiling of each kind of matmul and of each level of memory, measured with the threads
/// of the run; with any number of threads where there is none of that. Instruction peaks are no roofs.
RoofLines roof_lines(const RunData& run);
/// Seconds that so many bytes take at the highest rate of DRAM, as if no cache held any of them; nothing
/// where no such rate is known. No roof: what caches hold need not come from there.
std::optional<double> dram_s(const RunData& run, double bytes);

}  // namespace rooflm::report
