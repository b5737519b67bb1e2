// What is said of splits that cannot be.
#include "compile/sharding.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/error.h"
#include "model/config.h"

namespace rooflm::compile {
namespace {

/// What a check says; "" where it accepts the split.
std::string said_of(const Sharding& sharding, std::int64_t layers, Purpose purpose = Purpose::run) {
  model::ModelConfig config = model::preset("tiny");
  config.layers = layers;
  try {
    check(sharding, config, 4, 64, 4, purpose);
  } catch (const core::UsageError& error) {
    return error.what();
  }
  return "";
}

/// In `train` --schedule is that of the learning rate, and that of the pipeline is --pipeline-schedule; in
/// `plan` it is --schedule.
TEST(ShardingMessages, NameNoOptionThatIsAnotherElsewhere) {
  const Sharding gpipe{.pipeline = 2, .schedule = PipelineSchedule::gpipe, .interleave = 2};
  const std::string text = said_of(gpipe, 4);
  EXPECT_NE(text.find("--interleave 2 goes with the 1f1b schedule"), std::string::npos) << text;
  EXPECT_EQ(text.find("--schedule"), std::string::npos) << text;
}

TEST(ShardingMessages, ShortEndsAreARemedyWhereTheyAreAnOption) {
  const Sharding four{.pipeline = 4};
  EXPECT_EQ(said_of(four, 8, Purpose::plan), "");
  const std::string offered = said_of(four, 6, Purpose::plan);
  EXPECT_NE(offered.find("--pp 4 does not divide the 6 layers"), std::string::npos) << offered;
  EXPECT_NE(offered.find("; with --short-ends it does"), std::string::npos) << offered;
  const std::string not_offered = said_of(four, 6);
  EXPECT_NE(not_offered.find("--pp 4 does not divide the 6 layers"), std::string::npos) << not_offered;
  EXPECT_EQ(not_offered.find("--short-ends"), std::string::npos) << not_offered;
  EXPECT_EQ(said_of(four, 7, Purpose::plan).find("--short-ends"), std::string::npos);
}

}  // namespace
}  // namespace rooflm::compile
