// The autotune cache: what is kept comes back, and a damaged file is as good as none, and said to be damaged.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/gemm_cache.h"
#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

cublasLtMatmulAlgo_t algorithm_of(std::uint64_t first) {
  cublasLtMatmulAlgo_t algorithm{};
  algorithm.data[0] = first;
  return algorithm;
}

class AutotuneCache : public testing::Test {
 protected:
  void SetUp() override {
    try {
      (void)cublasLtGetVersion();
    } catch (const core::Unavailable& error) {
      GTEST_SKIP() << error.what();
    }
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] GemmCache open(const std::string& gpu = "Some GPU") const { return {folder_, gpu, ""}; }
  [[nodiscard]] std::filesystem::path file() const {
    return std::filesystem::directory_iterator(folder_)->path();
  }
  void write(const std::string& text) const { std::ofstream(file()) << text; }
  [[nodiscard]] std::string read() const {
    std::ifstream stream(file());
    return {std::istreambuf_iterator<char>(stream), {}};
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("rooflm_autotune_" + std::to_string(::getpid()));
};

TEST_F(AutotuneCache, KeepsTheFirstOfEachGpu) {
  GemmCache cache = open();
  EXPECT_EQ(cache.add("a", algorithm_of(1)).data[0], 1U);
  EXPECT_EQ(cache.add("a", algorithm_of(2)).data[0], 1U);
  const GemmCache again = open();
  ASSERT_TRUE(again.find("a", true));
  EXPECT_EQ(again.find("a", true)->data[0], 1U);
  EXPECT_FALSE(again.find("a", false));
  EXPECT_TRUE(again.damaged().empty());
  EXPECT_FALSE(open("Another GPU").find("a", true));
}

TEST_F(AutotuneCache, ADamagedFileIsSaidAndMadeAnew) {
  (void)open().add("a", algorithm_of(1));
  const std::string good = read();
  const std::string cut = good.substr(0, good.size() / 2);
  for (const std::string& bad : {std::string(), cut, std::string("[1]"), std::string("{\"a\": [1, 2]}"),
                                 std::string("{\"a\": \"fast\"}"), std::string("\0\xff", 2)}) {
    write(bad);
    GemmCache cache = open();
    EXPECT_EQ(cache.damaged(), file()) << bad;
    EXPECT_FALSE(cache.find("a", true)) << bad;
    EXPECT_EQ(cache.add("a", algorithm_of(3)).data[0], 3U) << bad;
    const GemmCache mended = open();
    EXPECT_TRUE(mended.damaged().empty()) << bad;
    ASSERT_TRUE(mended.find("a", true)) << bad;
    EXPECT_EQ(mended.find("a", true)->data[0], 3U) << bad;
  }
}

/// Whoever comes second runs the algorithm of the first, and no entry is lost, also if all add at the same
/// time.
TEST_F(AutotuneCache, ProcessesThatAddAtOnceAgree) {
  constexpr std::uint64_t kWriters = 8;
  constexpr int kMatmuls = 10;
  std::vector<std::vector<std::uint64_t>> taken(kWriters);
  {
    std::vector<std::jthread> writers;
    for (std::uint64_t w = 0; w < kWriters; ++w) {
      writers.emplace_back([&, w] {
        GemmCache cache = open();
        for (int m = 0; m < kMatmuls; ++m)
          taken[w].push_back(cache.add(std::to_string(m), algorithm_of(w + 1)).data[0]);
      });
    }
  }
  const GemmCache cache = open();
  for (std::size_t m = 0; m < kMatmuls; ++m) {
    const auto kept = cache.find(std::to_string(m), true);
    ASSERT_TRUE(kept) << m;
    for (const auto& one : taken) EXPECT_EQ(one[m], kept->data[0]) << m;
  }
}

}  // namespace
}  // namespace rooflm::backends::cuda
