// The matmul rate of this machine, measured with the kernels that the fused engine uses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lab/devices.h"
#include "measure/peaks.h"

namespace rooflm::lab {

/// Square matmuls of these extents run through the device's own kernels (fp32, bf16x6, tf32, bf16 and fp16:
/// those of the fused engine; fp64: the processor's reference) on `threads` threads. The fastest extent
/// counts. Throws core::Unavailable when the backend has no kernel for the dtype.
measure::Peak measure_products(const std::string& device, ComputeDtype compute, int threads,
                               const std::vector<std::int64_t>& extents,
                               const measure::SamplingOptions& options);

/// The rate of an idle GPU: a few matmuls at a time, with pauses to cool down. Under sustained load the clock
/// is lower, but single ops of a step may reach this rate.
measure::Peak measure_product_bursts(const std::string& device, ComputeDtype compute,
                                     const std::vector<std::int64_t>& extents, int samples);

/// Twelve hexadecimal digits that stand for the code that measures ceilings (src/backends, src/measure,
/// src/lab/*ceilings.cpp), its compilers and their flags. Made by the build, so that no version number has to
/// be raised: ceilings cached by other code are measured again.
std::string_view measuring_digest();
/// The digest, and the instructions that oneDNN's and our kernels may use here: ONEDNN_MAX_CPU_ISA in the
/// environment changes the rates. The key of its ceilings.
std::string measuring_on_processor();

}  // namespace rooflm::lab
