// How fast memory can be read and written.
#include "measure/bandwidth.h"

#include <fmt/format.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>

#include "backends/thread_team.h"

namespace rooflm::measure {
namespace {

/// A cache line.
struct alignas(64) Line {
  double numbers[8];
};

constexpr double kScale = 2.0;

/// Keeps the compiler from leaving out a pass whose result the next one makes again.
void keep(const void* data) { asm volatile("" : : "r"(data) : "memory"); }

enum class Loop : std::uint8_t { read, write, saxpy, update, copy, triad, adamw };
struct LoopKind {
  Loop loop;
  const char* name;
  std::size_t arrays;
  std::size_t passes;  ///< over one array: its reading, its writing
  const char* dtype = "fp64";
};
/// saxpy reads the zeros of write: halves of other doubles may be subnormal floats, which are slow.
constexpr std::array<LoopKind, kBandwidthLoops> kLoops = {{{Loop::read, "read", 1, 1},
                                                           {Loop::write, "write", 1, 1},
                                                           {Loop::saxpy, "saxpy", 2, 3, "fp32"},
                                                           {Loop::update, "update", 1, 2},
                                                           {Loop::copy, "copy", 2, 2},
                                                           {Loop::triad, "triad", 3, 3},
                                                           {Loop::adamw, "adamw", 4, 7}}};

namespace usual {
#if defined(__AVX512F__)
constexpr std::size_t kWidth = 64;
#elif defined(__AVX__)
constexpr std::size_t kWidth = 32;
#else
constexpr std::size_t kWidth = 16;
#endif
#include "measure/bandwidth_loops.inc"
}  // namespace usual

// A binary for many processors has the loops once more for wider registers: kernels do the same, and none may
// beat its roof. Not with clang, which knows no such pragma: lint sees the loops once.
#if defined(ROOFLM_LEVELS) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
namespace wide {
constexpr std::size_t kWidth = 64;
#include "measure/bandwidth_loops.inc"
}  // namespace wide
#pragma GCC pop_options

const auto kWalk = __builtin_cpu_supports("x86-64-v4") ? wide::walk : usual::walk;
#else
constexpr auto kWalk = usual::walk;
#endif

/// As the processor backend does for its tensors: with small pages address translation binds, not memory.
void ask_for_huge_pages(Line* data, std::size_t bytes) {
  constexpr std::uintptr_t kPage = std::uintptr_t{2} << 20U;
  const auto begin = (reinterpret_cast<std::uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / kPage * kPage;
  if (end > begin) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

/// The memory of all threads; the pages of each block are touched first by the thread that uses it.
class Blocks {
 public:
  Blocks(int threads, std::size_t bytes) : blocks_(static_cast<std::size_t>(threads)) {
    lines_ = bytes / sizeof(Line) / blocks_.size();
    if (lines_ < kFewestLines) throw std::invalid_argument("too little memory to measure");
    backends::require_team(threads);
    for_each_block([this](std::vector<Line>& block) {
      block.reserve(lines_);
      ask_for_huge_pages(block.data(), lines_ * sizeof(Line));
      block.resize(lines_);
    });
    if (lacks_memory_) throw std::bad_alloc();
  }

  /// Bytes that one pass of a loop names, in all threads.
  [[nodiscard]] double pass_bytes(const LoopKind& kind) const {
    return static_cast<double>(array_lines(kind) * kind.passes * sizeof(Line) * blocks_.size());
  }

  void run(const LoopKind& kind, int passes) {
    const std::size_t n = array_lines(kind);
    for_each_block([&](std::vector<Line>& block) {
      const std::span<Line> all = block;
      for (int pass = 0; pass < passes; ++pass) {
        kWalk(kind.loop, all, n);
        keep(all.data());
      }
    });
  }

 private:
  static constexpr std::size_t kRoundLines = 8;  ///< of a loop, with the widest registers
  static constexpr std::size_t kFewestLines = std::size_t{4} * 8 * kRoundLines;

  [[nodiscard]] std::size_t array_lines(const LoopKind& kind) const {
    return lines_ / kind.arrays / kRoundLines * kRoundLines;
  }

  /// One thread per block; were there fewer threads, some would do several.
  template <class Work>
  void for_each_block(Work work) {
    const int count = static_cast<int>(blocks_.size());
    bool failed = false;
#pragma omp parallel num_threads(count) reduction(|| : failed)
    for (int i = omp_get_thread_num(); i < count; i += omp_get_num_threads()) {
      try {
        work(blocks_[static_cast<std::size_t>(i)]);
      } catch (const std::bad_alloc&) {
        failed = true;
      }
    }
    lacks_memory_ = lacks_memory_ || failed;
  }

  std::vector<std::vector<Line>> blocks_;
  std::size_t lines_ = 0;  ///< of one block
  bool lacks_memory_ = false;
};

/// So many passes that the clock and the start of the threads do not matter: each thread moves 128 MiB, half
/// a millisecond of the fastest level. A count from a trial run would be off on a busy machine.
int passes_per_sample(double pass_bytes, int threads) {
  constexpr double kBytesEach = 128.0 * (1U << 20U);
  return std::max(1, static_cast<int>(std::lround(kBytesEach * threads / pass_bytes)));
}

/// How many processors share a cache: the entries of "0-3,8-11"; 1 when that says nothing.
int sharers(std::string_view list) {
  int count = 0;
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(part.size() + 1, list.size()));
    const char* const end = part.data() + part.size();
    int first = 0;
    const auto parsed = std::from_chars(part.data(), end, first);
    if (parsed.ec != std::errc()) continue;
    int last = first;
    if (parsed.ptr != end) std::from_chars(parsed.ptr + 1, end, last);
    count += std::max(1, last - first + 1);
  }
  return std::max(1, count);
}

}  // namespace

std::vector<MemoryLevel> memory_levels(const Processor& processor, int threads, double free_bytes) {
  constexpr std::size_t kLeastDram = std::size_t{48} << 20U;
  constexpr std::size_t kBeyond = 12;      // times the last level
  constexpr std::size_t kLeastBeyond = 4;  // the same where that is beyond kMuch: more only takes longer
  constexpr std::size_t kMuch = std::size_t{1} << 30U;
  std::vector<MemoryLevel> levels;
  std::size_t last_level = 0;
  for (const Cache& cache : processor.caches) {
    if (cache.type == "Instruction" || cache.bytes <= 0) continue;
    const int group = sharers(cache.shared_by);
    const auto groups = static_cast<std::size_t>((threads + group - 1) / group);
    const std::size_t bytes = static_cast<std::size_t>(cache.bytes) * groups;
    last_level = std::max(last_level, bytes);
    levels.push_back({.name = fmt::format("L{}", cache.level), .working_bytes = bytes / 2});
  }
  const std::size_t cached = last_level > 0 ? last_level : kUnknownCache;
  const std::size_t wanted =
      std::max(kLeastDram, std::min(kBeyond * cached, std::max(kLeastBeyond * cached, kMuch)));
  const auto allowed = static_cast<std::size_t>(std::max(0.0, free_bytes) / 2);
  if (allowed >= kLeastDram) levels.push_back({.name = "DRAM", .working_bytes = std::min(wanted, allowed)});
  return levels;
}

std::vector<Peak> measure_bandwidth(const MemoryLevel& level, int threads, const SamplingOptions& options) {
  Blocks blocks(threads, level.working_bytes);
  std::vector<Peak> peaks;
  SamplingOptions rest = options;
  for (const LoopKind& kind : kLoops) {
    const int passes = passes_per_sample(blocks.pass_bytes(kind), threads);
    const double bytes = blocks.pass_bytes(kind);
    const CpuShare share;
    const core::Summary rate = measure_rate(
        bytes * passes, [&] { blocks.run(kind, passes); }, rest);
    // Other programs have the processors: this level is uncertain however long the other loops are timed.
    if (rate.count < static_cast<std::size_t>(options.min_samples)) rest.most_seconds = 0;
    peaks.push_back({.what = kind.name,
                     .level = level.name,
                     .dtype = kind.dtype,
                     .unit = "byte/s",
                     .threads = threads,
                     .problem = fmt::format("{:.0f} bytes, {} passes", bytes, passes),
                     .rate = rate,
                     .cpu_share = share.value()});
  }
  return peaks;
}

}  // namespace rooflm::measure
