// Steps of programs that were recorded or imported, found again for a report.
#pragma once

#include "foreign/steps_by.h"
#include "report/model/run_data.h"

namespace rooflm::cli {

/// Replaces the foreign runs of the set, as they are in its files, by the same with the steps that `by` says.
/// Throws core::InputError as record::Reader does.
void find_steps_again(const foreign::StepsBy& by, report::RecordSet& set);

}  // namespace rooflm::cli
