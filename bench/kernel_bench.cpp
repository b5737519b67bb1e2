// Timing, and the machine's limits.
#include "kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

#include "backends/cpu/fast/elementwise.h"
#include "backends/cpu/fast/gemm.h"

namespace rooflm::bench {
namespace {

using backends::cpu::Gemm;
using backends::cpu::GemmProblem;
using core::DType;

// a += s * b: two arrays are read and one is written, so the counted bytes are the traffic.
void update(std::int64_t n, float* to, const float* from) {
  backends::cpu::parallel_for(n, 4096, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (auto i = begin; i < end; ++i) to[i] += 3.0F * from[i];
  });
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

double square_gemm(const Bench& bench, DType type) {
  const GemmProblem p{.m = 2048, .n = 2048, .k = 2048, .a_type = type, .b_type = type};
  const Gemm gemm(p);
  const Array<float> a(2048 * 2048), b(2048 * 2048), c(2048 * 2048);
  std::memset(a, 0, 2048 * 2048 * 4);
  std::memset(b, 0, 2048 * 2048 * 4);
  const Array<char> scratch(static_cast<std::int64_t>(gemm.scratch_bytes()));
  return bench.run("limit: gemm", "2048 x 2048 x 2048", name_of(type), 2.0 * 2048 * 2048 * 2048,
                   type == DType::f32 ? Limit::fp32_gemm : Limit::bf16_gemm,
                   [&] { gemm(a, b, c, nullptr, scratch); });
}

}  // namespace

void Bench::print_header() {
  fmt::print("{:<26} {:<28} {:<5} {:>10} {:>9} {:<7} {:>6}\n", "kernel", "shape", "dtype", "ms", "rate",
             "unit", "share");
}

double Bench::run(std::string_view name, const std::string& shape, std::string_view dtype, double work,
                  Limit limit, const std::function<void()>& body) const {
  if (limit == Limit::memory) return run_in_turn(name, shape, dtype, work, body);
  const double seconds = best_s(body);
  const double rate = work / seconds;
  const double top = limits_[static_cast<std::size_t>(limit)];
  const std::string share = top > 0 ? fmt::format("{:.0f}%", 100 * rate / top) : "";
  fmt::print("{:<26} {:<28} {:<5} {:>10.3f} {:>9.1f} {:<7} {:>6}\n", name, shape, dtype, seconds * 1e3,
             rate * 1e-9, "GFLOP/s", share);
  std::fflush(stdout);
  return rate;
}

double Bench::run_in_turn(std::string_view name, const std::string& shape, std::string_view dtype,
                          double bytes, const std::function<void()>& body) const {
  constexpr int kTurns = 9;
  constexpr double kUpdateBytes = 3.0 * kMovedFloats * sizeof(float);
  std::vector<double> times, updates, copies, shares;
  const auto time = [this](const std::function<void()>& run) {
    const double begin = now_s();
    run();
    return now_s() - begin;
  };
  body();
  for (int i = 0; i < kTurns; ++i) {
    updates.push_back(kUpdateBytes / time([&] { update(kMovedFloats, to_, from_); }));
    copies.push_back(kUpdateBytes * 2 / 3 /
                     time([&] { backends::cpu::copy_bytes(kMovedFloats * 4, from_, to_); }));
    times.push_back(time(body));
    shares.push_back(bytes / times.back() / updates.back());
  }
  const double rate = bytes / median(times);
  fmt::print("{:<26} {:<28} {:<5} {:>10.3f} {:>9.1f} {:<7} {:>5.0f}% of {:.1f} (copy {:.1f})\n", name, shape,
             dtype, median(times) * 1e3, rate * 1e-9, "GB/s", 100 * median(shares), median(updates) * 1e-9,
             median(copies) * 1e-9);
  std::fflush(stdout);
  return rate;
}

double Bench::now_s() const {
  if (!cpu_clock_) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double Bench::best_s(const std::function<void()>& body) const {
  constexpr double kBudgetSeconds = 0.25;
  body();
  double best = 1e30;
  const double start = now_s();
  for (int i = 0; i < 3 || now_s() - start < kBudgetSeconds; ++i) {
    const double begin = now_s();
    body();
    best = std::min(best, now_s() - begin);
  }
  return best;
}

void Bench::measure_limits() {
  const auto keep_best = [this](Limit limit, double rate) {
    double& top = limits_[static_cast<std::size_t>(limit)];
    top = std::max(top, rate);
  };
  keep_best(Limit::fp32_gemm, square_gemm(*this, DType::f32));
  try {
    keep_best(Limit::bf16_gemm, square_gemm(*this, DType::bf16));
  } catch (const core::Unavailable& error) {
    fmt::print("{}\n", error.what());
  }
}

}  // namespace rooflm::bench
