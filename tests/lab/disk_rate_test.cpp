// What a disk gives, and what a step reads of a shard.
#include "lab/ceilings/disk_rate.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "text/shard.h"

namespace rooflm::lab {
namespace {

class DiskRates : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("rooflm-disk-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  /// A shard of that many tokens.
  [[nodiscard]] std::filesystem::path shard(std::size_t tokens, text::TokenWidth width) const {
    const auto path = folder_ / "tokens.bin";
    text::ShardWriter writer(path, width);
    writer.append(std::vector<std::uint32_t>(tokens, 7));
    writer.finish();
    return path;
  }
  std::filesystem::path folder_;
};

TEST_F(DiskRates, AreOfFilesThatHaveBytes) {
  const std::array files = {shard(200'000, text::TokenWidth::u16)};
  const auto rate = disk_rate(files);
  ASSERT_TRUE(rate);
  EXPECT_GT(rate->byte_per_s, 1e4);
  const std::array missing = {folder_ / "missing"};
  EXPECT_FALSE(disk_rate(missing));
  EXPECT_FALSE(disk_rate({}));
}

TEST_F(DiskRates, AStepReadsItsTokensAsTheShardHoldsThem) {
  for (const auto& [width, bytes] :
       {std::pair{text::TokenWidth::u16, 1024.0}, {text::TokenWidth::u32, 2048.0}}) {
    const std::array files = {shard(1000, width)};
    std::map<std::string, record::Fact> facts;
    for (const record::Fact& fact : disk_facts(files, 512)) facts[fact.key] = fact;
    EXPECT_EQ(facts.at("input_bytes").value, bytes);
    EXPECT_FALSE(facts.at("disk_byte_per_s").text.empty()) << "whether the page cache helped";
  }
}

}  // namespace
}  // namespace rooflm::lab
