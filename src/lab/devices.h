// Resolves names of devices and dtypes.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backends/registry.h"
#include "compile/recipe.h"
#include "core/dtype.h"
#include "devices/device.h"

namespace rooflm::lab {

using backends::default_device;
using backends::offered_dtypes;
using backends::parse_device;

/// Whether `device` computes anything, and whether that is this machine's processor.
bool runs(const std::string& device);
bool is_host(const std::string& device);
/// Throws core::UsageError for devices that run nothing; `what` cannot be done then: "measured", "trained".
void require_runs(const std::string& device, std::string_view what);

using compile::compute_dtype_of;
using compile::ComputeDtype;

/// The compute dtype of a name of the command line: fp32, bf16x6, tf32, bf16, fp16, fp8. Throws
/// core::UsageError with a suggestion for other names, core::Unavailable for those that `device`, described
/// by `description`, does not compute.
ComputeDtype parse_compute_dtype(std::string_view name, const std::string& device,
                                 const devices::Device& description);

/// Throws core::Unavailable where the device does not compute in it.
void check_dtype(const ComputeDtype& compute, const std::string& device, const devices::Device& description);

/// The same for single ops on operands of one dtype: fp8, whose factors have scales, is Unavailable.
ComputeDtype parse_operand_dtype(std::string_view name, const std::string& device,
                                 const devices::Device& description);

/// The backend on which an engine of this kind runs. Throws core::Unavailable with the reason when there is
/// no such device here.
std::unique_ptr<backends::Backend> make_backend(const std::string& device, compile::EngineKind engine,
                                                backends::MakeOptions options = {});

/// Threads that the processor backend uses for `threads`: for 0 as backends::default_team.
int resolve_threads(int threads);
/// As backends::most_threads.
int most_threads();

}  // namespace rooflm::lab
