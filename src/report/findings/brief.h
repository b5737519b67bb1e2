// A record in ten lines: what bounds it, what could be gained, what to run next.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// One of the advice (advise).
struct BriefFinding {
  std::string subject{};               ///< "h.*/attention/qkv backward"
  std::string text{};                  ///< the sentence of the advice
  std::string option{};                ///< "--engine fused"; "" where no option changes it
  double gain_s = 0;                   ///< per step, at most
  std::optional<double> step_share{};  ///< gain_s / the step
  /// "upper bound": more than the step's interval leaves open; else why it is less sure.
  std::string certainty{};
};

/// Of the fastest run with a step time, else of the first one.
struct Brief {
  std::string kind{};  ///< of the run: "step", "train", "foreign", ...; "plan", "study", "serving", "record"
  std::string run{};   ///< its label; "" without runs, or where the verdict is of all of them
  std::size_t runs = 0;   ///< of the records
  std::string verdict{};  ///< the headline, the answer of the study or plan, or what there is
  std::string bound{};    ///< cause with most of the time in kernels; "" where none is known
  std::optional<double> bound_share{};
  std::optional<double> step_s{}, step_low_s{}, step_high_s{};  ///< plain steps: median and its interval
  double interval_coverage = 0;                                 ///< below 0.95 with fewer than 6 steps
  std::size_t steps = 0;
  std::vector<BriefFinding> findings{};  ///< at most three, the largest gain first
  std::string caution{};                 ///< load of the machine, unfinished records
  std::string next{};                    ///< command
};

/// Of at least one file.
Brief brief_of(const RecordSet& set);
/// At most ten lines of `width` columns, 80 or more; 0: no limit. Long subjects are cut, the command never
/// is.
std::string brief_text(const Brief& brief, std::size_t width);
/// One JSON object on one line, keys as the members; what is absent is null.
std::string brief_json(const Brief& brief);

}  // namespace rooflm::report
