// The loops on registers compute what they say: short runs against exact sums, per instruction set.
#include "measure/instruction_peaks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/f16.h"
#include "core/units.h"
#include "tests/case_names.h"

namespace rooflm::measure {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

template <class T>
std::vector<double> read_as(std::span<const std::byte> bytes) {
  std::vector<double> values;
  for (std::size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value{};
    std::memcpy(&value, bytes.data() + i, sizeof(T));
    values.push_back(static_cast<double>(value));
  }
  return values;
}

/// core's halves turn into float only.
template <class Half>
std::vector<double> read_halves(std::span<const std::byte> bytes) {
  std::vector<double> values;
  for (std::size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    Half half;
    std::memcpy(&half.bits, bytes.data() + i, 2);
    values.push_back(static_cast<double>(static_cast<float>(half)));
  }
  return values;
}

std::vector<double> values_of(std::span<const std::byte> bytes, std::string_view dtype) {
  if (dtype == "fp64") return read_as<double>(bytes);
  if (dtype == "bf16") return read_halves<core::Bf16>(bytes);
  if (dtype == "fp16") return read_halves<core::F16>(bytes);
  return read_as<float>(bytes);
}

struct Numbers {
  std::vector<double> a, b, sums;
};

Numbers numbers_of(const InstructionLoop& loop, const InstructionOperands& operands) {
  const bool is_fp32 =
      loop.arithmetic == Arithmetic::dot_pairs || loop.arithmetic == Arithmetic::tile_of_pairs;
  Numbers numbers{.a = values_of(operands.a, loop.dtype),
                  .b = values_of(operands.b, loop.dtype),
                  .sums = values_of(operands.sums, is_fp32 ? "fp32" : loop.dtype)};
  numbers.sums.resize(at(loop.chains * loop.lanes));
  return numbers;
}

/// What one instruction adds to sum `lane`.
double added(const InstructionLoop& loop, const Numbers& n, int lane) {
  if (loop.arithmetic == Arithmetic::multiply_add) return n.a[at(lane)] * n.b[at(lane)];
  if (loop.arithmetic == Arithmetic::dot_pairs) {
    return n.a[at(2 * lane)] * n.b[at(2 * lane)] + n.a[at(2 * lane + 1)] * n.b[at(2 * lane + 1)];
  }
  constexpr int kWidth = 32;  // of a row of bf16
  const int row = lane / 16;
  const int col = lane % 16;
  double sum = 0;
  for (int k = 0; k < kWidth; ++k) {
    sum += n.a[at(row * kWidth + k)] * n.b[at(k / 2 * kWidth + 2 * col + k % 2)];
  }
  return sum;
}

Numbers expected(const InstructionLoop& loop, Numbers n, int rounds) {
  for (int chain = 0; chain < loop.chains; ++chain) {
    for (int lane = 0; lane < loop.lanes; ++lane) {
      double& sum = n.sums[at(chain * loop.lanes + lane)];
      if (loop.arithmetic != Arithmetic::multiply_and_add) {
        sum += rounds * added(loop, n, lane);
      } else if (chain >= loop.chains / 2) {
        sum += rounds * n.b[at(lane)];
      } else if (rounds % 2 != 0) {
        sum *= n.a[at(lane)];
      }
    }
  }
  return n;
}

class Instructions : public testing::TestWithParam<InstructionLoop> {};

TEST_P(Instructions, SumsAreExact) {
  const InstructionLoop& loop = GetParam();
  if (const std::string reason = why_missing(loop, query_processor()); !reason.empty()) {
    GTEST_SKIP() << loop.set << " " << loop.dtype << ": " << reason;
  }
  for (const int rounds : {0, 1, 2, 13}) {  // fp16 sums stay below 32, multiples of 1/64: exact
    InstructionOperands operands = make_operands(loop);
    const Numbers before = numbers_of(loop, operands);
    loop.run(rounds, operands);
    EXPECT_EQ(numbers_of(loop, operands).sums, expected(loop, before, rounds).sums) << rounds << " rounds";
  }
}

TEST_P(Instructions, OperandsLookRandomAndFlopAreCounted) {
  const InstructionLoop& loop = GetParam();
  const Numbers numbers = numbers_of(loop, make_operands(loop));
  int positive = 0;
  int distinct = 0;
  for (std::size_t i = 1; i < numbers.sums.size(); ++i) {
    positive += numbers.sums[i] > 0 ? 1 : 0;
    distinct += numbers.sums[i] != numbers.sums[i - 1] ? 1 : 0;
    EXPECT_LE(std::abs(numbers.sums[i]), 1);
  }
  EXPECT_GT(positive, 0.2 * static_cast<double>(numbers.sums.size()));
  EXPECT_GT(distinct, 0.5 * static_cast<double>(numbers.sums.size()));
  double flop_per_sum = 2;
  if (loop.arithmetic == Arithmetic::multiply_and_add) flop_per_sum = 1;
  if (loop.arithmetic == Arithmetic::dot_pairs) flop_per_sum = 4;
  if (loop.arithmetic == Arithmetic::tile_of_pairs) flop_per_sum = 64;
  EXPECT_EQ(loop.round_flop, flop_per_sum * loop.lanes * loop.chains);
}

INSTANTIATE_TEST_SUITE_P(All, Instructions,
                         testing::ValuesIn(instruction_loops().begin(), instruction_loops().end()),
                         [](const auto& given) {
                           return tests::case_name(given.param.set, given.param.dtype);
                         });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Instructions);

TEST(InstructionPeaks, AMissingSetSaysWhatIsMissing) {
  const InstructionLoop tiles{.dtype = "bf16", .set = "tiles", .needs = {"avx2", "amx_bf16"}};
  Processor processor;
  processor.features = {"avx2"};
  EXPECT_EQ(why_missing(tiles, processor), "this processor has no amx_bf16");
  processor.features.emplace_back("amx_bf16");
  EXPECT_EQ(why_missing(tiles, processor), "");
  InstructionLoop refused = tiles;
  refused.may_run = [] { return false; };
  EXPECT_NE(why_missing(refused, processor).find("the system does not let"), std::string::npos);
}

TEST(InstructionPeaks, ThePeakNamesItsInstructionsOrTheReasonThatThereIsNone) {
  for (const char* dtype : {"fp32", "fp64", "bf16", "fp16", "fp4"}) {
    const auto peak = measure_instruction_peak(dtype, 1, {.seconds = 0, .min_samples = 3});
    EXPECT_EQ(peak.has_value(), why_no_instruction_peak(dtype).empty()) << dtype;
    if (!peak) continue;
    EXPECT_EQ(peak->what, "instruction");
    EXPECT_EQ(peak->dtype, dtype);
    EXPECT_EQ(peak->unit, "flop/s");
    EXPECT_NE(peak->problem.find(" chains"), std::string::npos);
    EXPECT_GT(peak->rate.median, 1e8);
  }
  EXPECT_NE(why_no_instruction_peak("fp4"), "");
}

}  // namespace
}  // namespace rooflm::measure
