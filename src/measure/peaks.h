// What this machine can do at best: matrix products per dtype, and memory traffic.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "measure/sampling.h"
#include "measure/statistics.h"

namespace rooflm::measure {

/// A matrix product [m, k] x [k, n] that is ready to run; a multiply-add is 2 flop.
struct Product {
  double m = 0, n = 0, k = 0;
  double repeats = 1;         ///< how often `run` computes it
  std::function<void()> run;  ///< returns when the products are done
  [[nodiscard]] double flop() const { return 2 * m * n * k * repeats; }
};

/// One measured ceiling.
struct Peak {
  std::string what;     ///< "matmul", "read", "write", "copy", "triad"
  std::string dtype;    ///< of the elements
  std::string unit;     ///< "flop/s" or "byte/s"
  int threads = 0;      ///< that took part; 0 on a device that has none of its own
  std::string problem;  ///< "2048x2048x2048", or the bytes of one array
  Summary rate;         ///< of `unit`; the ceiling is its median
};

/// Measures each product for options.seconds and returns the one with the highest median rate.
Peak fastest_product(const std::vector<Product>& products, const std::string& dtype, int threads,
                     const SamplingOptions& options);

/// Memory traffic of `threads` threads on arrays of fp64 that each take `array_bytes`, which should be well
/// beyond the last-level cache: read (sum), write (fill), copy (b = a) and triad (a = b + 2 c). Bytes are
/// those that the loop names, as STREAM counts them (McCalpin, 1995): a cache line that is fetched only
/// because it is written is not counted. Needs 3 array_bytes; std::bad_alloc when they are not there.
std::vector<Peak> measure_bandwidth(int threads, std::size_t array_bytes, const SamplingOptions& options);

}  // namespace rooflm::measure
