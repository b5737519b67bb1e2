// The matrix-product rate of this machine, measured with the kernels that the fused engine uses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/devices.h"
#include "compile/recipe.h"
#include "measure/peaks.h"

namespace rooflm::cli {

/// Square products of these extents run through the device's own kernels (fp32, tf32, bf16 and fp16: those of
/// the fused engine; fp64: the processor's reference) on `threads` threads. The fastest extent counts. Throws
/// core::Unavailable when the backend has no kernel for the dtype.
measure::Peak measure_products(const std::string& device, ComputeDtype compute, int threads,
                               const std::vector<std::int64_t>& extents,
                               const measure::SamplingOptions& options);

/// The rate of a GPU that was at rest: a few products at a time, with pauses in which it cools down. Under a
/// lasting load it lowers its clock, but single ops of a step may run as fast as this.
measure::Peak measure_product_bursts(const std::string& device, ComputeDtype compute,
                                     const std::vector<std::int64_t>& extents, int samples);

/// The rates that `bench` divides by, each measured once, in about a second, when it is first asked for.
class Ceilings {
 public:
  explicit Ceilings(int threads) : threads_(threads) {}
  /// Of the device, the compute dtype and all threads of this run, in flop/s. Announces itself on standard
  /// error.
  const measure::Peak& products(const std::string& device, const compile::StepOptions& step);
  /// By device and dtype.
  [[nodiscard]] const std::map<std::string, measure::Peak>& measured() const { return measured_; }

 private:
  int threads_;
  std::map<std::string, measure::Peak> measured_;
};

/// "fp32 189 GFLOP/s (2 threads, 2048x2048x2048, median of 12, 95% interval 185 G to 190 G)"
std::string describe(const measure::Peak& peak);

}  // namespace rooflm::cli
