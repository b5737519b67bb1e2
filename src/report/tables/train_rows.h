// The summary of a training run: the keys of JSON and CSV of `rooflm train`, and the table made of such rows.
#pragma once

#include <span>

#include "report/model/run_data.h"
#include "report/tables/table.h"
#include "report/tables/typed_columns.h"

namespace rooflm::report {

/// Whether the run has what a summary shows: it was made by `rooflm train`.
bool is_training(const RunData& run);

/// Losses, speed and how far it came; what is not known is null. tokens_per_s and MFU are of all steps of the
/// process, waiting for data included, while those of figures_of are of the median step.
const TypedColumns<RunData>& train_columns();

/// The table of `rooflm train`, its notes included.
Table train_table(std::span<const RunData> runs);

}  // namespace rooflm::report
