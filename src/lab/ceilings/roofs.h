// Roofs of a run, from the machine's ceilings, and whether what was measured keeps to them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lab/ceilings/ceiling_book.h"
#include "measure/interleave.h"
#include "perfmodel/roofline.h"
#include "record/rows.h"
#include "record/writer.h"

namespace rooflm::lab {

/// The processor or GPU `device` as `ceilings` describe it, for `threads` threads (0: one per core).
perfmodel::Machine machine_of(const std::vector<record::Ceiling>& ceilings, const std::string& device,
                              int threads);

/// Measured seconds by subject, as in record::Prediction::subject: of "op:N" the median of its device times,
/// of "phase:NAME" and "step" that of the plain steps.
using MeasuredTimes = std::map<std::string, double>;
MeasuredTimes measured_times(const std::vector<record::Event>& events,
                             const measure::InterleaveResult& result);

/// The bounds ("DRAM", "matmul fp32") of the roofs that measured times beat by more than 2 % and a
/// microsecond.
std::set<std::string> beaten_bounds(const std::vector<record::Prediction>& roofs,
                                    const MeasuredTimes& measured);

/// The peak that the run's MFU divides by, where it was measured.
void write_peak(record::Writer& record, const CeilingBook::PricedRun& priced, const CeilingBook& ceilings);

/// Peaks and roofs of all runs on the host by the ceilings as they are now, after some changed.
void price_again(record::Writer& record, const CeilingBook& ceilings);

}  // namespace rooflm::lab
