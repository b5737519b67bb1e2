// Plans beside what was measured.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "cli/table.h"
#include "devices/device.h"
#include "perfmodel/plan.h"

namespace rooflm::cli {

/// For each training step that the record measured: seconds of ops by class, of all ops and of the step, and
/// bytes at the peak, measured and planned for `device`. The plan builds every layer. Throws
/// core::InputError for a file that is no record or has no measured step.
Table plan_against(const std::filesystem::path& record, const devices::Device& device);

/// By kind of work, seconds of ops that the record measured by those that are planned for `device`, all steps
/// together. Notes where another device measured them. Throws core::InputError for a record without times of
/// ops.
std::map<std::string, double> calibration_of(const std::filesystem::path& record,
                                             const devices::Device& device);

}  // namespace rooflm::cli
