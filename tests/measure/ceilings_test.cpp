// Ceilings: which memory is walked through, and the file that keeps them.
#include "measure/ceilings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.h"
#include "measure/bandwidth.h"

namespace rooflm::measure {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kKib = 1024;
constexpr std::int64_t kMib = 1024 * kKib;

Processor made_up_processor() {
  return {.model = "Made up",
          .cores = 4,
          .threads = 4,
          .caches = {{.level = 1, .type = "Data", .bytes = 32 * kKib, .shared_by = "0"},
                     {.level = 1, .type = "Instruction", .bytes = 64 * kKib, .shared_by = "0"},
                     {.level = 2, .type = "Unified", .bytes = 1 * kMib, .shared_by = "0,2"},
                     {.level = 3, .type = "Unified", .bytes = 16 * kMib, .shared_by = "0-3"}},
          .features = {}};
}

TEST(MemoryLevels, HalfOfWhatTheThreadsHave) {
  const auto one = memory_levels(made_up_processor(), 1, 1e12);
  ASSERT_EQ(one.size(), 4U);
  EXPECT_EQ(one[0].name, "L1");
  EXPECT_EQ(one[0].working_bytes, 16U * kKib);
  EXPECT_EQ(one[1].working_bytes, 512U * kKib);
  EXPECT_EQ(one[2].working_bytes, 8U * kMib);
  EXPECT_EQ(one[3].name, "DRAM");
  EXPECT_EQ(one[3].working_bytes, 12U * 16 * kMib);
  const auto four = memory_levels(made_up_processor(), 4, 1e12);
  EXPECT_EQ(four[0].working_bytes, 4U * 16 * kKib);   // its own for each
  EXPECT_EQ(four[1].working_bytes, 2U * 512 * kKib);  // one for two
  EXPECT_EQ(four[2].working_bytes, 8U * kMib);        // one for all
}

TEST(MemoryLevels, BeyondAGigabyteFourTimesTheLastLevelIsEnough) {
  Processor processor = made_up_processor();
  processor.caches.back().bytes = 128 * kMib;
  EXPECT_EQ(memory_levels(processor, 1, 1e12).back().working_bytes, 1024U * kMib);
  processor.caches.back().bytes = 480 * kMib;
  EXPECT_EQ(memory_levels(processor, 1, 1e12).back().working_bytes, 4U * 480 * kMib);
}

TEST(MemoryLevels, FreeMemoryIsTheLimit) {
  EXPECT_EQ(memory_levels(made_up_processor(), 1, 2.0 * 64 * kMib).back().working_bytes, 64U * kMib);
  EXPECT_EQ(memory_levels(made_up_processor(), 1, 1e6).back().name, "L3");  // not even the caches can be left
  EXPECT_EQ(memory_levels(Processor{}, 1, 1e12).size(), 1U);                // caches unknown: DRAM alone
}

TEST(Bandwidth, EveryLoopInItsMemory) {
  const auto peaks =
      measure_bandwidth({.name = "L2", .working_bytes = 256 * kKib}, 2, {.seconds = 0, .min_samples = 3});
  ASSERT_EQ(peaks.size(), kBandwidthLoops);
  for (const Peak& peak : peaks) {
    EXPECT_EQ(peak.level, "L2");
    EXPECT_EQ(peak.unit, "byte/s");
    EXPECT_EQ(peak.threads, 2);
    EXPECT_EQ(peak.rate.count, 3U);
    EXPECT_GT(peak.rate.median, 1e8);
    EXPECT_GT(peak.cpu_share, 0);
  }
  EXPECT_EQ(peaks[0].what, "read");
  EXPECT_EQ(peaks[0].problem, "262144 bytes, 1024 passes");  // 128 MiB for each of two threads
  EXPECT_EQ(peaks[2].what, "saxpy");
  EXPECT_EQ(peaks[2].dtype, "fp32");
  EXPECT_EQ(peaks[2].problem, "393216 bytes, 683 passes");  // half of the lines for each array, three passes
  EXPECT_EQ(peaks[5].what, "triad");
  // 4096 lines, half for each thread, a third for each array, whole rounds of eight: 680 lines.
  EXPECT_EQ(peaks[5].problem, "261120 bytes, 1028 passes");
  EXPECT_EQ(peaks[6].what, "adamw");
  EXPECT_EQ(peaks[6].problem,
            "458752 bytes, 585 passes");  // seven passes over 512 lines in each of two threads
  EXPECT_THROW(measure_bandwidth({.name = "L1", .working_bytes = 8 * kKib}, 1, {}), std::invalid_argument);
}

/// A sample is as long as in a cache, whatever the memory that keeps the lines out of caches.
TEST(Bandwidth, LargeMemoryIsWalkedInParts) {
  const auto peaks =
      measure_bandwidth({.name = "DRAM", .working_bytes = 300 * kMib}, 1, {.seconds = 0, .min_samples = 3});
  for (const Peak& peak : peaks) EXPECT_EQ(peak.rate.count, 3U);
  EXPECT_EQ(peaks[0].problem, "314572800 bytes in 2 parts");
  EXPECT_EQ(peaks[6].problem, "550502400 bytes in 4 parts");
}

#if defined(NDEBUG) && defined(__OPTIMIZE__)
/// Bytes per second of additions that wait for each other: one number in three or four cycles, in any cache.
double chain_rate(std::span<const double> numbers) {
  const auto sum = [&] {
    double total = 0;
    for (const double number : numbers) total += number;
    asm volatile("" : : "m"(total));
  };
  return measure_rate(static_cast<double>(numbers.size_bytes()), sum, {.seconds = 0, .min_samples = 9})
      .median;
}

/// Sums that the compiler kept on the stack read 15 GB/s from a cache that moves 145: twice a chain's rate.
TEST(Bandwidth, SumsStayInRegisters) {
  const std::vector<double> numbers(4 * kMib / sizeof(double), 1.0);
  constexpr int kAttempts = 5;  // others may have the processor meanwhile
  constexpr double kTimes = 6;
  double best = 0;
  for (int i = 0; i < kAttempts && best < kTimes; ++i) {
    const auto peaks =
        measure_bandwidth({.name = "L1", .working_bytes = 16 * kKib}, 1, {.seconds = 0, .min_samples = 5});
    ASSERT_EQ(peaks[0].what, "read");
    best = std::max(best, peaks[0].rate.median / chain_rate(numbers));
  }
  EXPECT_GE(best, kTimes);
}
#endif

/// A folder that goes away, and XDG_CACHE_HOME pointing there.
class CeilingFile : public testing::Test {
 protected:
  CeilingFile() {
    std::string name = (fs::temp_directory_path() / "rooflm-ceilings-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~CeilingFile() override {
    unsetenv("XDG_CACHE_HOME");
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  void spoil(const std::string& text) const { std::ofstream(file()) << text; }
  [[nodiscard]] std::string content() const {
    std::ifstream in(file());
    return {std::istreambuf_iterator<char>(in), {}};
  }
  [[nodiscard]] fs::path file() const { return ceiling_file(key_); }

  fs::path folder_;
  CeilingKey key_{
      .processor = "AMD EPYC (tm) 9B14", .threads = 2, .version = "0.1.0", .measuring = "0123456789ab"};
  std::vector<record::Ceiling> rows_ = {{.what = "read",
                                         .level = "DRAM",
                                         .dtype = "fp64",
                                         .threads = 2,
                                         .value = 2.5e10,
                                         .unit = "byte/s",
                                         .ci_low = 2.4e10,
                                         .ci_high = 2.6e10,
                                         .samples = 7,
                                         .problem = "402653184 bytes, 1 passes",
                                         .measured_utc = "2026-01-31T12:00:00Z"}};
};

TEST_F(CeilingFile, KeepsEveryField) {
  EXPECT_EQ(file(), folder_ / "rooflm" / "ceilings-amd-epyc-tm-9b14-2-threads-0-1-0-0123456789ab.json");
  EXPECT_TRUE(read_ceilings(file(), key_).rows.empty());
  EXPECT_EQ(read_ceilings(file(), key_).fault, "");  // not being there is no fault
  write_ceilings(file(), key_, rows_);
  const KeptCeilings kept = read_ceilings(file(), key_);
  EXPECT_EQ(kept.fault, "");
  ASSERT_EQ(kept.rows.size(), 1U);
  const record::Ceiling& row = kept.rows.front();
  EXPECT_EQ(row.device, "cpu");
  EXPECT_EQ(row.what, "read");
  EXPECT_EQ(row.level, "DRAM");
  EXPECT_EQ(row.dtype, "fp64");
  EXPECT_EQ(row.threads, 2);
  EXPECT_EQ(row.value, 2.5e10);
  EXPECT_EQ(row.unit, "byte/s");
  EXPECT_EQ(row.ci_low, 2.4e10);
  EXPECT_EQ(row.ci_high, 2.6e10);
  EXPECT_EQ(row.samples, 7);
  EXPECT_EQ(row.problem, "402653184 bytes, 1 passes");
  EXPECT_EQ(row.source, "measured");
  EXPECT_EQ(row.measured_utc, "2026-01-31T12:00:00Z");
}

TEST_F(CeilingFile, DamageIsSaidInOneLine) {
  write_ceilings(file(), key_, rows_);
  const std::string good = content();
  std::string impossible = good;
  impossible.replace(impossible.find("25000000000.0"), 13, "-5");
  std::string mistyped = good;
  mistyped.replace(mistyped.find("\"DRAM\""), 6, "3");
  for (const std::string& text : {std::string(), good.substr(0, good.size() / 2), std::string("[1, 2]"),
                                  std::string(100, '\0'), impossible, mistyped}) {
    spoil(text);
    const KeptCeilings kept = read_ceilings(file(), key_);
    EXPECT_TRUE(kept.rows.empty()) << text;
    EXPECT_NE(kept.fault.find(file().string()), std::string::npos) << kept.fault;
    EXPECT_EQ(kept.fault.find('\n'), std::string::npos) << kept.fault;
  }
}

TEST_F(CeilingFile, OtherMachinesDoNotCount) {
  write_ceilings(file(), key_, rows_);
  CeilingKey other = key_;
  other.processor = "AMD EPYC (tm) 9B14.";  // the same file name
  ASSERT_EQ(ceiling_file(other), file());
  EXPECT_TRUE(read_ceilings(file(), other).rows.empty());
  EXPECT_NE(read_ceilings(file(), other).fault.find("another machine"), std::string::npos);
  other = key_;
  other.threads = 3;
  EXPECT_NE(ceiling_file(other), file());
}

TEST_F(CeilingFile, OtherCodeMeasuresAgain) {
  write_ceilings(file(), key_, rows_);
  CeilingKey other = key_;
  other.measuring = "ba9876543210";
  EXPECT_NE(ceiling_file(other), file());
  EXPECT_TRUE(read_ceilings(ceiling_file(other), other).rows.empty());
  EXPECT_TRUE(read_ceilings(file(), other).rows.empty());  // a file that was renamed
  EXPECT_NE(read_ceilings(file(), other).fault.find("build"), std::string::npos);
}

TEST_F(CeilingFile, WithoutAFolderThereIsNoFile) {
  const char* home = std::getenv("HOME");
  const std::string kept_home = home == nullptr ? "" : home;
  setenv("XDG_CACHE_HOME", "relative/ones/do/not/count", 1);
  setenv("HOME", "/home/somebody", 1);
  EXPECT_EQ(ceiling_file(key_).parent_path(), "/home/somebody/.cache/rooflm");
  unsetenv("HOME");
  EXPECT_TRUE(ceiling_file(key_).empty());
  EXPECT_TRUE(read_ceilings("", key_).rows.empty());
  if (home != nullptr) setenv("HOME", kept_home.c_str(), 1);
}

TEST_F(CeilingFile, WhatCannotBeWrittenIsSaid) {
  std::ofstream(folder_ / "rooflm") << "a file where the folder should be";
  EXPECT_THROW(write_ceilings(file(), key_, rows_), core::InputError);
}

}  // namespace
}  // namespace rooflm::measure
