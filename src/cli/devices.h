// From the names of devices and dtypes to what runs them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backends/backend.h"
#include "core/dtype.h"
#include "engines/recipe.h"

namespace rooflm::cli {

/// "cpu", "cuda:N" ("cuda" is "cuda:0") or "null". Throws core::UsageError with a suggestion.
std::string parse_device(std::string_view name);

/// The compute dtype of a name of the command line: fp32, tf32, bf16, fp16, fp8. Throws core::UsageError with
/// a suggestion for other names, core::Unavailable for those that `device` does not compute: the processor
/// has fp32 and bf16, planning on "null" also fp16.
core::DType parse_compute_dtype(std::string_view name, const std::string& device);

/// The backend on which an engine of this kind runs; `threads` 0 means one per core. Throws core::Unavailable
/// with the reason when there is no such device here.
std::unique_ptr<backends::Backend> make_backend(const std::string& device, engines::EngineKind engine,
                                                int threads);

/// Threads that the processor backend uses for `threads`: one per core that this process may use for 0.
int resolve_threads(int threads);

}  // namespace rooflm::cli
