// What micro-benchmarks of kernels share: memory, timing, the machine's limits, and one line per result.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "backends/cpu/fast/parallel.h"
#include "core/error.h"

namespace rooflm::bench {

/// Memory filled with small numbers of either storage type, in huge pages where it is large, as an arena
/// would be.
template <class S>
class Array {
 public:
  explicit Array(std::int64_t n) : data_(allocate(static_cast<std::size_t>(n) * sizeof(S))) {
    backends::cpu::parallel_for(n, 4096, [this](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i)
        data_.get()[i] = S(static_cast<float>(i * 7919 % 1000) / 500.0F - 1.0F);
    });
  }
  operator S*() const { return data_.get(); }

 private:
  struct Free {
    void operator()(S* p) const { std::free(p); }
  };
  static S* allocate(std::size_t bytes) {
    constexpr std::size_t kHugePage = std::size_t{1} << 21U;
    const std::size_t alignment = bytes < kHugePage ? 64 : kHugePage;
    const std::size_t padded = (bytes / alignment + 1) * alignment;
    void* data = std::aligned_alloc(alignment, padded);
    if (data == nullptr) throw core::OutOfMemory("the benchmark: no memory", static_cast<double>(padded));
    if (alignment == kHugePage) (void)madvise(data, padded, MADV_HUGEPAGE);
    return static_cast<S*>(data);
  }
  std::unique_ptr<S, Free> data_;
};

/// What a kernel is held against.
enum class Limit { fp32_gemm, bf16_gemm, memory };

/// Runs kernels and prints a line for each: time, rate, share of the limit.
class Bench {
 public:
  /// `cpu_clock`: CPU time of the calling thread instead of the wall clock. `filter`: what names must
  /// contain.
  Bench(bool cpu_clock, std::string filter) : cpu_clock_(cpu_clock), filter_(std::move(filter)) {}

  static void print_header();
  [[nodiscard]] bool wants(std::string_view name) const {
    return name.find(filter_) != std::string_view::npos;
  }

  /// Times `body`, which does `work` FLOP or bytes, prints the line and returns the rate in work per second.
  /// The time is the best of several. What memory limits is run in turn with loops that only move bytes,
  /// since bandwidth differs from minute to minute: medians, and the share is the median of each pair's.
  double run(std::string_view name, const std::string& shape, std::string_view dtype, double work,
             Limit limit, const std::function<void()>& body) const;

  /// Measures the GEMM limits, 2048^3 in fp32 and bf16. Keeps the best rate of all calls.
  void measure_limits();

 private:
  static constexpr std::int64_t kMovedFloats = std::int64_t{1} << 25U;  // 134 MB, more than the caches hold
  [[nodiscard]] double now_s() const;
  [[nodiscard]] double best_s(const std::function<void()>& body) const;
  double run_in_turn(std::string_view name, const std::string& shape, std::string_view dtype, double bytes,
                     const std::function<void()>& body) const;

  bool cpu_clock_;
  std::string filter_;
  double limits_[2] = {};
  Array<float> to_{kMovedFloats}, from_{kMovedFloats};
};

}  // namespace rooflm::bench
