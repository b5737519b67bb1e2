// Resources shared by the kernels of one CPU backend: scratch memory and rotary tables.
#include "backends/cpu/resources.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "backends/thread_team.h"
#include "core/error.h"
#include "core/units.h"

namespace rooflm::backends::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20U;
// Allocations of at least this size check free memory first: overcommitted memory would swap later.
constexpr std::size_t kAskFrom = std::size_t{32} << 20U;

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// The first number in a file, or infinity when there is none ("max").
double number_in(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? value : kUnlimited;
}

/// The value of "name value" in a file, or 0.
double named_number_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    double value = 0;
    if (word == name && file >> value) return value;
    file.clear();
  }
  return 0;
}

/// Bytes left in a control group: its limit minus its usage, not counting page cache that can be dropped.
double left_of_group(const std::string& limit, const std::string& usage, const std::string& stat) {
  const double limit_bytes = number_in(limit);
  const double used_bytes = number_in(usage);
  if (limit_bytes > 1e18 || used_bytes > 1e18) return kUnlimited;
  return limit_bytes - used_bytes + named_number_in(stat, "inactive_file");
}

/// Path of this process's group below the mount point: what follows "0::" (v2) or ":memory:" (v1).
std::string group_path(const std::string& marker) {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (const auto at = line.find(marker); at != std::string::npos) return line.substr(at + marker.size());
  }
  return "";
}

double left_of_groups() {
  double left = kUnlimited;
  for (const std::string& group : {std::string(), group_path("0::")}) {
    const std::string v2 = "/sys/fs/cgroup" + group;
    left = std::min(left, left_of_group(v2 + "/memory.max", v2 + "/memory.current", v2 + "/memory.stat"));
  }
  for (const std::string& group : {std::string(), group_path(":memory:")}) {
    const std::string v1 = "/sys/fs/cgroup/memory" + group;
    left = std::min(left, left_of_group(v1 + "/memory.limit_in_bytes", v1 + "/memory.usage_in_bytes",
                                        v1 + "/memory.stat"));
  }
  return left;
}

/// Bytes of the last-level caches of this process's cores, each cache counted once.
std::int64_t last_caches_bytes() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 0;
  std::map<std::string, double> bytes_of;  // by the list of cores that share it
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &cores)) continue;
    const std::string cache = fmt::format("/sys/devices/system/cpu/cpu{}/cache/index3/", core);
    std::ifstream file(cache + "shared_cpu_list");
    std::string sharers;
    const double kilobytes = number_in(cache + "size");  // "32768K"
    if (std::getline(file, sharers) && kilobytes < kUnlimited) bytes_of[sharers] = 1024 * kilobytes;
  }
  double sum = 0;
  for (const auto& [sharers, bytes] : bytes_of) sum += bytes;
  return static_cast<std::int64_t>(sum);
}

}  // namespace

bool is_streamed(std::int64_t bytes) {
  constexpr std::int64_t kUsual = std::int64_t{32} << 20U;
  static const std::int64_t caches = last_caches_bytes();
  return bytes > (caches > 0 ? caches : kUsual);
}

double available_memory_bytes() {
  const double available = 1024 * named_number_in("/proc/meminfo", "MemAvailable:");
  return std::max(0.0, std::min(available > 0 ? available : kUnlimited, left_of_groups()));
}

int available_cores() {
  double share = kUnlimited;
  for (const std::string& group : {std::string(), group_path("0::")}) {
    std::ifstream file("/sys/fs/cgroup" + group + "/cpu.max");
    double quota = 0;
    double period = 0;
    if (file >> quota >> period && period > 0) share = std::min(share, quota / period);
  }
  for (const std::string& group : {std::string(), group_path(":cpu:")}) {
    const std::string v1 = "/sys/fs/cgroup/cpu" + group;
    const double quota = number_in(v1 + "/cpu.cfs_quota_us");
    const double period = number_in(v1 + "/cpu.cfs_period_us");
    if (quota > 0 && period > 0 && period < 1e18) share = std::min(share, quota / period);
  }
  return std::max(1, std::min(default_team(), static_cast<int>(std::min(std::ceil(share), 1e6))));
}

void keep_released_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20U);  // glibc's maximum: larger blocks are mapped anew each time
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

void trim_memory() noexcept { (void)malloc_trim(0); }

void* allocate_memory(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const auto refuse = [&](double free) {
    throw core::OutOfMemory(
        fmt::format("out of memory: {} asked for, {} free on this machine",
                    core::format_bytes(static_cast<double>(bytes)), core::format_bytes(free)),
        static_cast<double>(bytes));
  };
  if (bytes >= kAskFrom) {
    if (const double free = available_memory_bytes(); static_cast<double>(bytes) > free) refuse(free);
  }
  const bool is_large = bytes >= 2 * kHugePage;
  const std::size_t alignment = is_large ? kHugePage : kAlignment;
  const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = nullptr;
  if (padded < bytes || posix_memalign(&data, alignment, padded) != 0) refuse(available_memory_bytes());
  // A hint: if it fails, pages are small and results do not change.
  if (is_large) (void)madvise(data, padded / kHugePage * kHugePage, MADV_HUGEPAGE);
  return data;
}

void release_memory(void* data) noexcept { std::free(data); }

void Scratchpad::reserve(std::size_t bytes) {
  if (bytes <= bytes_) return;
  release_memory(data_);
  data_ = nullptr;
  bytes_ = 0;
  data_ = allocate_memory(bytes);
  bytes_ = bytes;
}

template <>
auto Resources::cache<float>() -> std::map<Key, std::shared_ptr<const RopeTables<float>>>& {
  return float_tables_;
}
template <>
auto Resources::cache<double>() -> std::map<Key, std::shared_ptr<const RopeTables<double>>>& {
  return double_tables_;
}

template <class C>
void RopeTables<C>::fill() const {
  const std::int64_t half = head_dim_ / 2;
  for (std::int64_t t = 0; t < seq_; ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency =
          std::pow(theta_, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim_));
      cosines_.push_back(static_cast<C>(std::cos(static_cast<double>(t) * frequency)));
      sines_.push_back(static_cast<C>(std::sin(static_cast<double>(t) * frequency)));
    }
  }
}
template void RopeTables<float>::fill() const;
template void RopeTables<double>::fill() const;

template <class C>
std::shared_ptr<const RopeTables<C>> Resources::rope_tables(std::int64_t seq, std::int64_t head_dim,
                                                            double theta) {
  auto& entry = cache<C>()[{seq, head_dim, theta}];
  if (entry == nullptr) entry = std::make_shared<RopeTables<C>>(seq, head_dim, theta);
  return entry;
}
template std::shared_ptr<const RopeTables<float>> Resources::rope_tables(std::int64_t, std::int64_t, double);
template std::shared_ptr<const RopeTables<double>> Resources::rope_tables(std::int64_t, std::int64_t, double);

}  // namespace rooflm::backends::cpu
