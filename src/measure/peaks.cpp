// What this machine can do at best.
#include "measure/peaks.h"

#include <fmt/format.h>

#include <stdexcept>

namespace rooflm::measure {

Peak fastest_product(const std::vector<Product>& products, const std::string& dtype, int threads,
                     const SamplingOptions& options) {
  if (products.empty()) throw std::invalid_argument("no matmuls to measure");
  Peak best;
  for (const Product& product : products) {
    const CpuShare share;
    const core::Summary rate = measure_rate(product.flop(), product.run, options);
    if (best.rate.count > 0 && rate.median <= best.rate.median) continue;
    best = {.what = "matmul",
            .dtype = dtype,
            .unit = "flop/s",
            .threads = threads,
            .problem = fmt::format("{:.0f}x{:.0f}x{:.0f}", product.m, product.n, product.k),
            .rate = rate,
            .cpu_share = share.value()};
  }
  return best;
}

}  // namespace rooflm::measure
