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

#include "core/error.h"
#include "core/system/control_groups.h"
#include "core/units.h"

namespace rooflm::backends::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20U;
// Allocations of at least this size check free memory first: overcommitted memory would swap later.
constexpr std::size_t kAskFrom = std::size_t{32} << 20U;

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
    const double kilobytes = core::number_in(cache + "size");  // "32768K"
    if (std::getline(file, sharers) && std::isfinite(kilobytes)) bytes_of[sharers] = 1024 * kilobytes;
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
  const double available = 1024 * core::named_number_in("/proc/meminfo", "MemAvailable:");
  const double left = core::ControlGroups().memory().left_bytes;
  return available > 0 ? std::min(available, left) : left;
}

void keep_released_memory() {
  // Once: glibc's allocator initializes itself here where another one serves `malloc` (a thread sanitizer's),
  // and would do so in two threads at a time.
  static const bool is_kept = [] {
    mallopt(M_MMAP_THRESHOLD, 32 << 20U);  // glibc's maximum: larger blocks are mapped anew each time
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
    return true;
  }();
  static_cast<void>(is_kept);
}

void trim_memory() noexcept { (void)malloc_trim(0); }

std::optional<Backend::AllocatorBytes> allocator_bytes() {
#ifdef __GLIBC__
  const auto all = mallinfo2();
  const auto mapped = static_cast<double>(all.hblkhd);
  return Backend::AllocatorBytes{.given_out = static_cast<double>(all.uordblks) + mapped,
                                 .held = static_cast<double>(all.arena) + mapped};
#else
  return std::nullopt;
#endif
}

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
  for (std::int64_t t = 0; t < seq_; ++t) {
    for (const double frequency : rotary_.frequencies) {
      const double angle = static_cast<double>(t) * frequency;
      cosines_.push_back(static_cast<C>(rotary_.amplitude * std::cos(angle)));
      sines_.push_back(static_cast<C>(rotary_.amplitude * std::sin(angle)));
    }
  }
}
template void RopeTables<float>::fill() const;
template void RopeTables<double>::fill() const;

template <class C>
std::shared_ptr<const RopeTables<C>> Resources::rope_tables(std::int64_t seq, const program::Rotary& rotary) {
  auto& entry = cache<C>()[{seq, rotary}];
  if (entry == nullptr) entry = std::make_shared<RopeTables<C>>(seq, rotary);
  return entry;
}
template std::shared_ptr<const RopeTables<float>> Resources::rope_tables(std::int64_t,
                                                                         const program::Rotary&);
template std::shared_ptr<const RopeTables<double>> Resources::rope_tables(std::int64_t,
                                                                          const program::Rotary&);

}  // namespace rooflm::backends::cpu
