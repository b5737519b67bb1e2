// Sums by tiles: AMX's instructions, their emulation, and whether this process may use the former.
#include "backends/cpu/fast/amx/tiles.h"

#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>

#include "backends/cpu/fast/vec.h"
#include "core/tile_shapes.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

// Both kinds of operations go through one loop, so it has the attribute for both: the compiler uses tiles
// only where it is told to.
#if defined(__x86_64__)
#define ROOFLM_TILES gnu::target("amx-tile,amx-bf16")
#else
#define ROOFLM_TILES gnu::noinline
#endif

namespace rooflm::backends::cpu {
namespace {

/// TDPBF16PS in the order of Intel's manual: each instruction sums the products of even and of odd terms
/// separately from zero, and adds their sum. The instruction also takes denormals for zero; this does not.
class EmulatedTiles {
 public:
  void zero() { std::memset(sums_, 0, sizeof sums_); }
  void load(const float* sums) { std::memcpy(sums_, sums, sizeof sums_); }
  void store(float* sums) const { std::memcpy(sums, sums_, sizeof sums_); }
  void step(const core::Bf16* left, const core::Bf16* right) {
    for (std::int64_t i = 0; i < 2; ++i) {
      for (std::int64_t j = 0; j < 2; ++j)
        dot(left + i * kTileFactors, right + j * kTileFactors, sums_ + (2 * i + j) * kTileSums);
    }
  }

 private:
  static void dot(const core::Bf16* left, const core::Bf16* right, float* sums) {
    for (std::int64_t row = 0; row < kTileSide; ++row) {
      float even[kTileSide] = {};
      float odd[kTileSide] = {};
      for (std::int64_t k = 0; k < kTileTerms; k += 2) {
        const auto left_even = static_cast<float>(left[row * kTileTerms + k]);
        const auto left_odd = static_cast<float>(left[row * kTileTerms + k + 1]);
        for (std::int64_t column = 0; column < kTileSide; ++column) {
          const core::Bf16* pair = right + (k / 2) * kTileTerms + 2 * column;
          even[column] += left_even * static_cast<float>(pair[0]);
          odd[column] += left_odd * static_cast<float>(pair[1]);
        }
      }
      for (std::int64_t column = 0; column < kTileSide; ++column)
        sums[row * kTileSide + column] += even[column] + odd[column];
    }
  }

  float sums_[kBlockSums];
};

#if defined(__x86_64__)

/// Tiles 0 to 3 hold sums, 4 and 5 left, 6 and 7 right factors. The left factors come from the L2 cache and
/// are used once before others of the panel, so their loads ask the L1 cache not to keep them.
class AmxTiles {
 public:
  [[ROOFLM_TILES, gnu::always_inline]] static void zero() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  [[ROOFLM_TILES, gnu::always_inline]] static void load(const float* sums) {
    _tile_loadd(0, sums, kRowBytes);
    _tile_loadd(1, sums + kTileSums, kRowBytes);
    _tile_loadd(2, sums + 2 * kTileSums, kRowBytes);
    _tile_loadd(3, sums + 3 * kTileSums, kRowBytes);
  }
  [[ROOFLM_TILES, gnu::always_inline]] static void store(float* sums) {
    _tile_stored(0, sums, kRowBytes);
    _tile_stored(1, sums + kTileSums, kRowBytes);
    _tile_stored(2, sums + 2 * kTileSums, kRowBytes);
    _tile_stored(3, sums + 3 * kTileSums, kRowBytes);
  }
  [[ROOFLM_TILES, gnu::always_inline]] static void step(const core::Bf16* left, const core::Bf16* right) {
    _tile_stream_loadd(4, left, kRowBytes);
    _tile_loadd(6, right, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, right + kTileFactors, kRowBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_stream_loadd(5, left + kTileFactors, kRowBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }

 private:
  static constexpr int kRowBytes = 64;
};

[[ROOFLM_TILES]] void begin_amx() { _tile_loadconfig(&core::kTileShapes); }
[[ROOFLM_TILES]] void end_amx() { _tile_release(); }

/// Linux gives a process the tile registers when it asks for them.
bool may_use_tiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// Whether the processor has the instructions and the system keeps the registers (XCR0 bits 17 and 18).
bool processor_has_tiles() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kSystemKeeps = 1U << 27U;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSystemKeeps) == 0) return false;
  constexpr unsigned kNeeded = 1U << 22U | 1U << 24U;  // AMX-BF16 and AMX-TILE
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kNeeded) != kNeeded) return false;
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kRegisters = 3U << 17U;
  return (low & kRegisters) == kRegisters;
}

#endif

ROOFLM_INLINE void fetch_step(const Ahead& next, std::int64_t step) {
  const core::Bf16* line = next.from + step * next.step_stride;
  for (std::int64_t i = 0; i < next.lines; ++i, line += next.line_stride) __builtin_prefetch(line, 0, 2);
}

/// See TileOps::multiply. [[gnu::noipa]]: the intrinsics do not tell the compiler what they read.
template <class Tiles>
[[ROOFLM_TILES, gnu::noipa]] void multiply_block(std::int64_t steps, const core::Bf16* left,
                                                 const core::Bf16* right, float* sums, bool first,
                                                 const Ahead& next_left, const Ahead& next_right) {
  const Ahead fetched_left = next_left;
  const Ahead fetched_right = next_right;
  Tiles tiles;
  if (first) {
    tiles.zero();
  } else {
    tiles.load(sums);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    tiles.step(left + step * kStepFactors, right + step * kStepFactors);
    fetch_step(fetched_left, step);
    fetch_step(fetched_right, step);
  }
  tiles.store(sums);
}

template <class Tiles>
constexpr TileOps ops_of(const char* name, void (*begin)(), void (*end)()) {
  return {.name = name, .begin = begin, .end = end, .multiply = multiply_block<Tiles>};
}

}  // namespace

bool has_amx() {
#if defined(__x86_64__)
  static const bool has = [] {
    const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
    const bool is_allowed = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
    return is_allowed && processor_has_tiles() && may_use_tiles();
  }();
  return has;
#else
  return false;
#endif
}

const TileOps& emulated_tiles() {
  static constexpr TileOps kOps = ops_of<EmulatedTiles>(
      "emulated tiles", [] {}, [] {});
  return kOps;
}

const TileOps& amx_tiles() {
#if defined(__x86_64__)
  static constexpr TileOps kOps = ops_of<AmxTiles>("amx_gemm<bf16>", begin_amx, end_amx);
  return kOps;
#else
  return emulated_tiles();
#endif
}

}  // namespace rooflm::backends::cpu
