// What the tests of the fast CPU kernels share: random arrays in either storage type, comparison with
// doubles.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/rng.h"

namespace rooflm::backends::cpu {

/// n normal numbers times `spread`, rounded to S.
template <class S>
std::vector<S> random_array(std::int64_t n, std::uint64_t seed, float spread = 1.0F) {
  std::vector<S> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = S(spread * core::normal(seed, 1, i));
  return values;
}

template <class S>
std::vector<double> to_double(const std::vector<S>& values) {
  std::vector<double> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    result[i] = static_cast<double>(static_cast<float>(values[i]));
  return result;
}

template <class S>
std::vector<float> to_float(const std::vector<S>& values) {
  std::vector<float> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) result[i] = static_cast<float>(values[i]);
  return result;
}

/// Rounding of one result in storage type S: half a unit in the last place of 24 or 8 bits.
template <class S>
constexpr double kRounding = sizeof(S) == 4 ? 0x1p-24 : 0x1p-8;

/// Every element within `relative` of the expected one, or within `absolute`.
template <class S>
void expect_near(const std::vector<S>& actual, const std::vector<double>& expected, double relative,
                 double absolute, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto value = static_cast<double>(static_cast<float>(actual[i]));
    const double allowed = absolute + relative * std::abs(expected[i]);
    ASSERT_LE(std::abs(value - expected[i]), allowed)
        << what << " at " << i << ": " << value << " for " << expected[i];
  }
}

template <class S>
void expect_same_bits(const std::vector<S>& a, const std::vector<S>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(S)), 0) << what << " differs at " << i;
  }
}

/// Sets the number of OpenMP threads and restores it.
class Threads {
 public:
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

using StorageTypes = ::testing::Types<float, core::Bf16>;

}  // namespace rooflm::backends::cpu
