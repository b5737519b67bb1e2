// Elements of every floating dtype as C++ types and as arrays of float and double.
#include "core/elements.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace rooflm::core {
namespace {

TEST(Elements, TypesHaveTheSizeOfTheirDtype) {
  for (const DTypeFacts& facts : kDTypes) {
    if (!facts.is_float) continue;
    const DType dtype = facts.dtype;
    EXPECT_EQ(with_float_type(dtype, [](auto element) { return sizeof(element); }), size_of(dtype));
  }
  EXPECT_THROW(with_float_type(DType::i32, [](auto) {}), std::logic_error);
}

template <class C>
void expect_round_trip() {
  // Every dtype has these.
  const std::vector<C> values = {C(0), C(1), C(-2.5), C(0.125), C(96), C(-1.75), C(3)};
  const auto count = static_cast<std::int64_t>(values.size());
  constexpr std::int64_t kOffset = 3;
  for (const DTypeFacts& facts : kDTypes) {
    if (!facts.is_float) continue;
    const DType dtype = facts.dtype;
    std::vector<std::byte> stored((values.size() + kOffset) * size_of(dtype));
    store_elements(values.data(), dtype, stored.data(), kOffset, count);
    std::vector<C> read(values.size());
    load_elements(dtype, stored.data(), kOffset, read.data(), count);
    EXPECT_EQ(read, values) << name_of(dtype);
    load_elements(dtype, stored.data(), 0, read.data(), kOffset);
    for (std::size_t i = 0; i < kOffset; ++i) EXPECT_EQ(read[i], C(0)) << "written before the offset";
  }
}

TEST(Elements, KeepNumbersThatTheirDtypeHas) {
  expect_round_trip<float>();
  expect_round_trip<double>();
}

TEST(Elements, RoundAsTheirTypesDo) {
  const std::vector<double> values = {1.0 / 3, 1e-7, 65519.0, 1 + 1.0 / 256, 1 + 3.0 / 256};
  for (const DType dtype : {DType::bf16, DType::f16, DType::f8, DType::f8_e5m2}) {
    for (const double value : values) {
      std::uint64_t stored = 0;
      double read = 0;
      store_elements(&value, dtype, &stored, 0, 1);
      load_elements(dtype, &stored, 0, &read, 1);
      const float expected = with_float_type(dtype, [&]<class T>(T) -> float {
        if constexpr (std::is_arithmetic_v<T>) return static_cast<float>(value);
        return static_cast<float>(T(static_cast<float>(value)));
      });
      EXPECT_EQ(read, static_cast<double>(expected)) << name_of(dtype) << ' ' << value;
    }
  }
}

}  // namespace
}  // namespace rooflm::core
