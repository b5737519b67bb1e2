// Ceilings of a record: which are limits, and how one that is measured again takes the place of the former.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "record/loaded_ceiling.h"
#include "record/reader.h"
#include "record/rows.h"
#include "record/writer.h"
#include "tests/record/record_testing.h"

namespace rooflm::record {
namespace {

TEST(Ceiling, ACeilingThatIsMeasuredAgainAndRoofsByItTakeThePlaceOfTheFormer) {
  const TemporaryFolder folder;
  {
    Writer writer(folder / "a.rooflm", "c");
    const Ceiling first{.device = "cpu", .what = "matmul", .dtype = "fp32", .threads = 2, .value = 344e9};
    Ceiling other = first;
    other.threads = 1;
    Ceiling again = first;
    again.value = 373e9;
    for (const Ceiling& ceiling : {first, other}) writer.add(ceiling);
    const std::int64_t run = writer.begin_run({.label = "r", .config = {}});
    const std::int64_t next = writer.begin_run({.label = "s", .config = {}});
    const auto roof = [](double value) {
      return std::vector<Prediction>{
          {.subject = "step", .quantity = "roof_s", .value = value, .unit = "s", .bound = "matmul fp32"}};
    };
    writer.add(run, roof(2));
    writer.add(next, roof(3));
    writer.replace(again);
    writer.replace(run, roof(1));
    writer.finish();
  }
  const Reader reader(folder / "a.rooflm");
  ASSERT_EQ(reader.ceilings().size(), 2U);
  EXPECT_EQ(reader.ceilings()[0].threads, 1);
  EXPECT_EQ(reader.ceilings()[1].value, 373e9);
  ASSERT_EQ(reader.rows<Prediction>(1).size(), 1U);
  EXPECT_EQ(reader.rows<Prediction>(1)[0].value, 1);
  EXPECT_EQ(reader.rows<Prediction>(2)[0].value, 3);
}

TEST(Ceiling, WhyACeilingIsNoLimit) {
  Ceiling row{
      .what = "matmul", .value = 100, .ci_low = 95, .ci_high = 105, .samples = 7, .source = "measured"};
  EXPECT_EQ(why_uncertain(row), "");
  row.ci_high = 116;
  EXPECT_EQ(why_uncertain(row), "the interval of its 7 samples is 21 % wide");
  row.source = "measured under load: other programs used 48.0 %";
  EXPECT_EQ(why_uncertain(row), row.source);
  row.source = kUnknownCaches;
  EXPECT_NE(why_uncertain(row), "");
  EXPECT_EQ(why_uncertain({.what = "matmul", .value = 100, .source = "catalog"}), "") << "no interval";
}

}  // namespace
}  // namespace rooflm::record
