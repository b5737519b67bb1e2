// What this machine can do at best.
#include "measure/peaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>

namespace rooflm::measure {
namespace {

/// Three arrays whose pages are spread over the threads that will use them.
class Arrays {
 public:
  Arrays(int threads, std::size_t bytes)
      : threads_(threads), size_(static_cast<std::int64_t>(bytes / sizeof(double))) {
    for (auto* array : {&a_, &b_, &c_}) {
      *array = std::make_unique_for_overwrite<double[]>(static_cast<std::size_t>(size_));
    }
    fill(a_.get(), 1.0);
    fill(b_.get(), 2.0);
    fill(c_.get(), 3.0);
  }

  void read() {
    const double* a = a_.get();
    double sum = 0;
#pragma omp parallel for simd schedule(static) num_threads(threads_) reduction(+ : sum)
    for (std::int64_t i = 0; i < size_; ++i) sum += a[i];
    sink_ = sum;
  }
  void write() { fill(a_.get(), sink_); }
  void copy() {
    const double* a = a_.get();
    double* b = b_.get();
#pragma omp parallel for simd schedule(static) num_threads(threads_)
    for (std::int64_t i = 0; i < size_; ++i) b[i] = a[i];
  }
  void triad() {
    double* a = a_.get();
    const double* b = b_.get();
    const double* c = c_.get();
#pragma omp parallel for simd schedule(static) num_threads(threads_)
    for (std::int64_t i = 0; i < size_; ++i) a[i] = b[i] + 2.0 * c[i];
  }

  [[nodiscard]] double bytes() const { return static_cast<double>(size_) * sizeof(double); }

 private:
  void fill(double* data, double value) const {
#pragma omp parallel for simd schedule(static) num_threads(threads_)
    for (std::int64_t i = 0; i < size_; ++i) data[i] = value;
  }

  int threads_;
  std::int64_t size_;
  std::unique_ptr<double[]> a_, b_, c_;
  volatile double sink_ = 0;  ///< keeps the sum from being optimised away
};

}  // namespace

Peak fastest_product(const std::vector<Product>& products, const std::string& dtype, int threads,
                     const SamplingOptions& options) {
  if (products.empty()) throw std::invalid_argument("no products to measure");
  Peak best;
  for (const Product& product : products) {
    const core::Summary rate = measure_rate(product.flop(), product.run, options);
    if (best.rate.count > 0 && rate.median <= best.rate.median) continue;
    best = {.what = "matmul",
            .dtype = dtype,
            .unit = "flop/s",
            .threads = threads,
            .problem = fmt::format("{:.0f}x{:.0f}x{:.0f}", product.m, product.n, product.k),
            .rate = rate};
  }
  return best;
}

std::vector<Peak> measure_bandwidth(int threads, std::size_t array_bytes, const SamplingOptions& options) {
  Arrays arrays(threads, array_bytes);
  const auto peak = [&](const char* what, double arrays_touched, void (Arrays::*loop)()) {
    return Peak{.what = what,
                .dtype = "fp64",
                .unit = "byte/s",
                .threads = threads,
                .problem = fmt::format("{:.0f} bytes an array", arrays.bytes()),
                .rate = measure_rate(
                    arrays_touched * arrays.bytes(), [&] { (arrays.*loop)(); }, options)};
  };
  return {peak("read", 1, &Arrays::read), peak("write", 1, &Arrays::write), peak("copy", 2, &Arrays::copy),
          peak("triad", 3, &Arrays::triad)};
}

}  // namespace rooflm::measure
