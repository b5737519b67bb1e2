// LayerNorm and RMSNorm by the kernels of a device: their error in each format, and where they overflow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "core/dtype.h"
#include "record/rows.h"

namespace rooflm::lab {

/// Rows of normal numbers, `offset` + `deviation` times a standard one, rounded to `dtype`.
struct NormInput {
  bool is_rms = false;  ///< RMSNorm, x / sqrt(mean(x^2) + eps); else LayerNorm; weights are 1, biases 0
  core::DType dtype = core::DType::f32;
  std::int64_t rows = 16, width = 768;
  double deviation = 1, offset = 0;
};

/// The result of a kernel, compared with double precision on the rounded inputs.
struct DeviceNormError {
  std::string kernel{};          ///< that ran
  std::int64_t outputs = 0;      ///< of rows whose inputs are finite
  std::int64_t not_finite = 0;   ///< of these
  std::int64_t inputs_lost = 0;  ///< inputs that rounding to the format made infinite
  double rms = 0, largest = 0;   ///< of finite outputs
};

/// Runs the kernel once. Throws core::Unavailable where the backend has none for the dtype.
DeviceNormError device_norm_error(backends::Backend& backend, const NormInput& input);

/// Both norms in fp32, bf16 and fp16, inputs of several deviations and offsets: series "norms_device".
/// Formats that the device has no kernel for are left out; the device must run things.
std::vector<record::Cell> device_norm_cells(const std::string& device);

}  // namespace rooflm::lab
