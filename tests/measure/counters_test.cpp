// Counters: what is counted (software events, which every kernel has), and which hardware events are asked
// for.
#include "measure/counters.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/mman.h>

#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "measure/counter_events.h"

namespace rooflm::measure {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPage = 4096;

/// Writes to `pages` pages that were never touched; each is a page fault. Sanitizers do not follow it: what
/// they keep of these pages would fault too.
__attribute__((no_sanitize("address", "thread"))) void touch_pages(std::size_t pages) {
  void* memory = mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  madvise(memory, pages * kPage, MADV_NOHUGEPAGE);
  for (std::size_t i = 0; i < pages; ++i) static_cast<volatile char*>(memory)[i * kPage] = 1;
  munmap(memory, pages * kPage);
}

std::vector<CounterGroup> page_faults(double weight = 1) {
  return {{{.name = "faults",
            .unit = "faults",
            .type = PERF_TYPE_SOFTWARE,
            .config = PERF_COUNT_SW_PAGE_FAULTS,
            .weight = weight}}};
}

/// Why pages cannot be counted exactly; "" where they can.
const char* why_not_exact() {
#ifdef __SANITIZE_THREAD__
  return "the thread sanitizer's shadow memory takes pages of its own";
#else
  return "";
#endif
}

TEST(Counters, CountBetweenStartAndStop) {
  if (*why_not_exact() != 0) GTEST_SKIP() << why_not_exact();
  Counters counters(page_faults());
  if (!counters.is_available()) GTEST_SKIP() << counters.reason();
  touch_pages(500);
  counters.start();
  touch_pages(1000);
  counters.stop();
  touch_pages(500);
  const auto values = counters.read();
  ASSERT_EQ(values.size(), 1U);
  EXPECT_EQ(values[0].name, "faults");
  EXPECT_EQ(values[0].unit, "faults");
  EXPECT_EQ(values[0].time_share, 1);
  EXPECT_GE(values[0].value, 1000);
  EXPECT_LE(values[0].value, 1050);  // a few of the test's own code and stack
  counters.start();
  counters.stop();
  EXPECT_LE(counters.read().at(0).value, 50);
}

TEST(Counters, WeightsAndEventsOfOneNameAddUp) {
  if (*why_not_exact() != 0) GTEST_SKIP() << why_not_exact();
  auto groups = page_faults(3);
  groups.push_back(page_faults(2).front());
  Counters counters(groups);
  if (!counters.is_available()) GTEST_SKIP() << counters.reason();
  counters.start();
  touch_pages(1000);
  counters.stop();
  ASSERT_EQ(counters.read().size(), 1U);
  EXPECT_GE(counters.read()[0].value, 5000);
  EXPECT_LE(counters.read()[0].value, 5250);
}

TEST(Counters, OtherThreadsCount) {
  std::mutex mutex;
  std::condition_variable changed;
  bool may_go = false;
  std::thread other([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return may_go; });
    touch_pages(1000);
  });
  Counters counters(page_faults());
  counters.start();
  {
    const std::lock_guard lock(mutex);
    may_go = true;
  }
  changed.notify_one();
  other.join();
  counters.stop();
  if (!counters.is_available()) GTEST_SKIP() << counters.reason();
  EXPECT_GE(counters.read().at(0).value, 1000);
}

TEST(Counters, WhatIsRefusedHasAReason) {
  Counters counters({{{.name = "nothing", .unit = "", .type = 0xFFFF, .config = 0}}});
  EXPECT_FALSE(counters.is_available());
  EXPECT_FALSE(counters.reason().empty());
  EXPECT_EQ(counters.reason().find('\n'), std::string::npos);
  counters.start();
  counters.stop();
  EXPECT_TRUE(counters.read().empty());
}

TEST(Counters, HardwareCountsAProductWhereItCan) {
  Counters counters;
  if (!counters.is_available()) GTEST_SKIP() << counters.reason();
  constexpr double kAdditions = 1e8;
  counters.start();
  volatile double sum = 0;
  for (int i = 0; i < static_cast<int>(kAdditions); ++i) sum = sum + 1.0;
  counters.stop();
  for (const CounterValue& value : counters.read()) {
    if (value.name == "instructions") {
      EXPECT_GE(value.value, kAdditions);
    }
    if (value.name == "flop") {
      EXPECT_NEAR(value.value, kAdditions, 0.02 * kAdditions);
    }
  }
}

TEST(CounterEvents, FlopOfEachVendor) {
  const CounterGroup intel = flop_events("GenuineIntel", 6);
  ASSERT_EQ(intel.size(), 5U);
  EXPECT_EQ(intel.front().config, 0x03C7U);
  EXPECT_EQ(intel.back().config, 0x80C7U);  // 512 bits of single precision
  EXPECT_EQ(intel.back().weight, 16);
  EXPECT_EQ(flop_events("AuthenticAMD", 0x19).at(0).config, 0x1F03U);
  EXPECT_EQ(flop_events("AuthenticAMD", 0x17).at(0).config, 0xFF03U);
  EXPECT_TRUE(flop_events("AuthenticAMD", 0x15).empty());
  EXPECT_TRUE(flop_events("somebody", 6).empty());
}

/// Made-up memory controllers, as /sys shows them.
class Controllers : public testing::Test {
 protected:
  Controllers() {
    std::string name = (fs::temp_directory_path() / "rooflm-uncore-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
  }
  ~Controllers() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text << "\n";
  }
  void write_controller(const std::string& name, const std::string& read_event) const {
    write(name + "/type", "14");
    write(name + "/cpumask", "0,28");
    for (const auto& [event, text] : {std::pair{"cas_count_read", read_event.c_str()},
                                      std::pair{"cas_count_write", "event=0x04,umask=0x0c"}}) {
      write(name + "/events/" + event, text);
      write(name + "/events/" + event + ".scale", "6.103515625e-5");
      write(name + "/events/" + event + ".unit", "MiB");
    }
  }
  fs::path folder_;
};

TEST_F(Controllers, AreFoundWithTheirScale) {
  write_controller("uncore_imc_0", "event=0x04,umask=0x03");
  write_controller("uncore_imc_1", "event=0x04,umask=0x03");
  write("software/type", "1");
  const auto groups = dram_events(folder_);
  ASSERT_EQ(groups.size(), 2U);
  const CounterEvent& read = groups[0].at(0);
  EXPECT_EQ(read.name, "dram_read_bytes");
  EXPECT_EQ(read.type, 14U);
  EXPECT_EQ(read.config, 0x0304U);
  EXPECT_EQ(read.cpu, 0);
  EXPECT_DOUBLE_EQ(read.weight, 64);  // a cache line
  EXPECT_EQ(groups[1].at(1).name, "dram_written_bytes");
  EXPECT_EQ(groups[1].at(1).config, 0x0C04U);
}

TEST_F(Controllers, WhatIsNotUnderstoodIsLeftOut) {
  write_controller("uncore_imc_0", "event=0x04,ch_mask=0x03");
  write_controller("uncore_imc_1", "");
  write_controller("uncore_imc_2", "event=0x04,umask=0x03");
  write("uncore_imc_2/events/cas_count_write.unit", "cycles");
  EXPECT_TRUE(dram_events(folder_).empty());
  EXPECT_TRUE(dram_events(folder_ / "missing").empty());
}

}  // namespace
}  // namespace rooflm::measure
