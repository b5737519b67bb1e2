// Ceilings of this machine, as measured, and its matmuls.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/statistics.h"
#include "measure/sampling.h"

namespace rooflm::measure {

/// A matmul [m, k] x [k, n] that is ready to run; a multiply-add is 2 flop.
struct Product {
  double m = 0, n = 0, k = 0;
  double repeats = 1;         ///< how often `run` computes it
  std::function<void()> run;  ///< returns when the matmuls are done
  [[nodiscard]] double flop() const { return 2 * m * n * k * repeats; }
};

/// One measured ceiling.
struct Peak {
  std::string
      what;  ///< "matmul", "instruction", "read", "write", "saxpy", "update", "copy", "triad", "adamw"
  std::string level{};  ///< of memory: "L1", "L2", "L3", "DRAM"; "" for arithmetic
  std::string dtype;    ///< of the elements
  std::string unit;     ///< "flop/s" or "byte/s"
  int threads = 0;      ///< that took part; 0 on a device that has none of its own
  std::string problem;  ///< "2048x2048x2048", or the bytes of a pass
  core::Summary rate;   ///< of `unit`; the ceiling is its median
  double cpu_share{};   ///< see CpuShare: well below 1 on a busy machine; meaningless on a device
};

/// Measures each matmul for options.seconds and returns the one with the highest median rate.
Peak fastest_product(const std::vector<Product>& products, const std::string& dtype, int threads,
                     const SamplingOptions& options);

}  // namespace rooflm::measure
