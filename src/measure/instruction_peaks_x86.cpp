// Multiply-add loops on the registers of x86-64. Each function is compiled for its own instruction set,
// whatever -march says; the processor is asked before one runs.
//
// Loops are unrolled over the chains so that every sum stays in a register: this file is compiled with -O3.
#include "measure/instruction_loops.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "core/tile_shapes.h"

namespace rooflm::measure {
namespace {

using Operands = InstructionOperands;

template <class T>
T* numbers(std::byte* bytes) {
  return reinterpret_cast<T*>(bytes);
}

// Loops by index, which are unrolled whole: the chains must stay in registers.
// NOLINTBEGIN(modernize-loop-convert)

/// Half of the chains multiply, half add: four cycles of latency, two units of each kind.
constexpr std::ptrdiff_t kSseChains = 14;

void run_sse2_fp32(std::int64_t rounds, Operands& io) {
  const __m128 a = _mm_load_ps(numbers<float>(io.a.data()));
  const __m128 b = _mm_load_ps(numbers<float>(io.b.data()));
  __m128 s[kSseChains];
#pragma GCC unroll 14
  for (std::ptrdiff_t i = 0; i < kSseChains; ++i) s[i] = _mm_load_ps(numbers<float>(io.sums.data()) + 4 * i);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 7
    for (std::ptrdiff_t i = 0; i < kSseChains / 2; ++i) {
      s[i] = _mm_mul_ps(s[i], a);
      s[i + kSseChains / 2] = _mm_add_ps(s[i + kSseChains / 2], b);
    }
  }
#pragma GCC unroll 14
  for (std::ptrdiff_t i = 0; i < kSseChains; ++i) _mm_store_ps(numbers<float>(io.sums.data()) + 4 * i, s[i]);
}

void run_sse2_fp64(std::int64_t rounds, Operands& io) {
  const __m128d a = _mm_load_pd(numbers<double>(io.a.data()));
  const __m128d b = _mm_load_pd(numbers<double>(io.b.data()));
  __m128d s[kSseChains];
#pragma GCC unroll 14
  for (std::ptrdiff_t i = 0; i < kSseChains; ++i) s[i] = _mm_load_pd(numbers<double>(io.sums.data()) + 2 * i);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 7
    for (std::ptrdiff_t i = 0; i < kSseChains / 2; ++i) {
      s[i] = _mm_mul_pd(s[i], a);
      s[i + kSseChains / 2] = _mm_add_pd(s[i + kSseChains / 2], b);
    }
  }
#pragma GCC unroll 14
  for (std::ptrdiff_t i = 0; i < kSseChains; ++i) _mm_store_pd(numbers<double>(io.sums.data()) + 2 * i, s[i]);
}

/// Of 16 registers two hold the factors. Four or five cycles of latency, two units: ten are enough.
constexpr std::ptrdiff_t kAvxChains = 12;

[[gnu::target("avx2,fma")]] void run_avx2_fp32(std::int64_t rounds, Operands& io) {
  const __m256 a = _mm256_load_ps(numbers<float>(io.a.data()));
  const __m256 b = _mm256_load_ps(numbers<float>(io.b.data()));
  __m256 s[kAvxChains];
#pragma GCC unroll 12
  for (std::ptrdiff_t i = 0; i < kAvxChains; ++i)
    s[i] = _mm256_load_ps(numbers<float>(io.sums.data()) + 8 * i);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 12
    for (std::ptrdiff_t i = 0; i < kAvxChains; ++i) s[i] = _mm256_fmadd_ps(a, b, s[i]);
  }
#pragma GCC unroll 12
  for (std::ptrdiff_t i = 0; i < kAvxChains; ++i)
    _mm256_store_ps(numbers<float>(io.sums.data()) + 8 * i, s[i]);
}

[[gnu::target("avx2,fma")]] void run_avx2_fp64(std::int64_t rounds, Operands& io) {
  const __m256d a = _mm256_load_pd(numbers<double>(io.a.data()));
  const __m256d b = _mm256_load_pd(numbers<double>(io.b.data()));
  __m256d s[kAvxChains];
#pragma GCC unroll 12
  for (std::ptrdiff_t i = 0; i < kAvxChains; ++i)
    s[i] = _mm256_load_pd(numbers<double>(io.sums.data()) + 4 * i);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 12
    for (std::ptrdiff_t i = 0; i < kAvxChains; ++i) s[i] = _mm256_fmadd_pd(a, b, s[i]);
  }
#pragma GCC unroll 12
  for (std::ptrdiff_t i = 0; i < kAvxChains; ++i)
    _mm256_store_pd(numbers<double>(io.sums.data()) + 4 * i, s[i]);
}

/// Of 32 registers; the dot products have up to six cycles of latency on two units.
constexpr std::ptrdiff_t kAvx512Chains = 24;

[[gnu::target("avx512f")]] void run_avx512_fp32(std::int64_t rounds, Operands& io) {
  const __m512 a = _mm512_load_ps(io.a.data());
  const __m512 b = _mm512_load_ps(io.b.data());
  __m512 s[kAvx512Chains];
#pragma GCC unroll 24
  for (std::ptrdiff_t i = 0; i < kAvx512Chains; ++i) s[i] = _mm512_load_ps(io.sums.data() + 64 * i);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 24
    for (std::ptrdiff_t i = 0; i < kAvx512Chains; ++i) s[i] = _mm512_fmadd_ps(a, b, s[i]);
  }
#pragma GCC unroll 24
  for (std::ptrdiff_t i = 0; i < kAvx512Chains; ++i) _mm512_store_ps(io.sums.data() + 64 * i, s[i]);
}

[[gnu::target("avx512f")]] void run_avx512_fp64(std::int64_t rounds, Operands& io) {
  const __m512d a = _mm512_load_pd(io.a.data());
  const __m512d b = _mm512_load_pd(io.b.data());
  __m512d s[kAvx512Chains];
#pragma GCC unroll 24
  for (std::ptrdiff_t i = 0; i < kAvx512Chains; ++i) s[i] = _mm512_load_pd(io.sums.data() + 64 * i);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 24
    for (std::ptrdiff_t i = 0; i < kAvx512Chains; ++i) s[i] = _mm512_fmadd_pd(a, b, s[i]);
  }
#pragma GCC unroll 24
  for (std::ptrdiff_t i = 0; i < kAvx512Chains; ++i) _mm512_store_pd(io.sums.data() + 64 * i, s[i]);
}

[[gnu::target("avx512f,avx512bf16")]] void run_avx512_bf16(std::int64_t rounds, Operands& io) {
  const auto a = reinterpret_cast<__m512bh>(_mm512_load_si512(io.a.data()));
  const auto b = reinterpret_cast<__m512bh>(_mm512_load_si512(io.b.data()));
  __m512 s[kAvx512Chains];
#pragma GCC unroll 24
  for (std::ptrdiff_t i = 0; i < kAvx512Chains; ++i) s[i] = _mm512_load_ps(io.sums.data() + 64 * i);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 24
    for (std::ptrdiff_t i = 0; i < kAvx512Chains; ++i) s[i] = _mm512_dpbf16_ps(s[i], a, b);
  }
#pragma GCC unroll 24
  for (std::ptrdiff_t i = 0; i < kAvx512Chains; ++i) _mm512_store_ps(io.sums.data() + 64 * i, s[i]);
}

/// The instruction by its name: not every compiler that reads this file has an intrinsic for it.
[[gnu::target("avx512f")]] void run_avx512_fp16(std::int64_t rounds, Operands& io) {
  const __m512 a = _mm512_load_ps(io.a.data());
  const __m512 b = _mm512_load_ps(io.b.data());
  __m512 s[kAvx512Chains];
#pragma GCC unroll 24
  for (std::ptrdiff_t i = 0; i < kAvx512Chains; ++i) s[i] = _mm512_load_ps(io.sums.data() + 64 * i);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 24
    for (std::ptrdiff_t i = 0; i < kAvx512Chains; ++i)
      asm("vfmadd231ph %2, %1, %0" : "+v"(s[i]) : "v"(a), "v"(b));
  }
#pragma GCC unroll 24
  for (std::ptrdiff_t i = 0; i < kAvx512Chains; ++i) _mm512_store_ps(io.sums.data() + 64 * i, s[i]);
}

/// Six of the eight tiles hold sums: one instruction takes 16 cycles and its result is there after 52.
constexpr int kTileChains = 6;
constexpr std::ptrdiff_t kTileSums = 256;

[[gnu::target("amx-tile,amx-bf16")]] void run_amx_bf16(std::int64_t rounds, Operands& io) {
  constexpr int kRowBytes = 64;
  _tile_loadconfig(&core::kTileShapes);
  float* sums = numbers<float>(io.sums.data());
  _tile_loadd(0, sums, kRowBytes);
  _tile_loadd(1, sums + 1 * kTileSums, kRowBytes);
  _tile_loadd(2, sums + 2 * kTileSums, kRowBytes);
  _tile_loadd(3, sums + 3 * kTileSums, kRowBytes);
  _tile_loadd(4, sums + 4 * kTileSums, kRowBytes);
  _tile_loadd(5, sums + 5 * kTileSums, kRowBytes);
  _tile_loadd(6, io.a.data(), kRowBytes);
  _tile_loadd(7, io.b.data(), kRowBytes);
  for (; rounds > 0; --rounds) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  _tile_stored(0, sums, kRowBytes);
  _tile_stored(1, sums + 1 * kTileSums, kRowBytes);
  _tile_stored(2, sums + 2 * kTileSums, kRowBytes);
  _tile_stored(3, sums + 3 * kTileSums, kRowBytes);
  _tile_stored(4, sums + 4 * kTileSums, kRowBytes);
  _tile_stored(5, sums + 5 * kTileSums, kRowBytes);
  _tile_release();
}

// NOLINTEND(modernize-loop-convert)

/// Linux gives a process the tile registers when it asks for them.
bool may_use_tiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// A loop of vector instructions, `lanes` multiply-adds each (pairs count as two), two of them per cycle.
InstructionLoop vectors(const char* dtype, const char* set, int chains, int lanes, Arithmetic arithmetic,
                        std::vector<const char*> needs, void (*run)(std::int64_t, Operands&)) {
  constexpr std::int64_t kInstructions = 8'000'000;
  const int products = arithmetic == Arithmetic::dot_pairs ? 2 * lanes : lanes;
  const double flop_each = arithmetic == Arithmetic::multiply_and_add ? products : 2 * products;
  return {.dtype = dtype,
          .set = set,
          .arithmetic = arithmetic,
          .chains = chains,
          .lanes = lanes,
          .round_flop = flop_each * chains,
          .sample_rounds = kInstructions / chains,
          .needs = std::move(needs),
          .run = run};
}

}  // namespace

std::vector<InstructionLoop> loops_of_architecture() {
  constexpr auto kFused = Arithmetic::multiply_add;
  constexpr auto kApart = Arithmetic::multiply_and_add;
  constexpr std::int64_t kTileRounds = 40'000;
  return {
      vectors("fp32", "SSE2 mul and add", kSseChains, 4, kApart, {}, run_sse2_fp32),
      vectors("fp64", "SSE2 mul and add", kSseChains, 2, kApart, {}, run_sse2_fp64),
      vectors("fp32", "AVX2 FMA", kAvxChains, 8, kFused, {"avx2", "fma"}, run_avx2_fp32),
      vectors("fp64", "AVX2 FMA", kAvxChains, 4, kFused, {"avx2", "fma"}, run_avx2_fp64),
      vectors("fp32", "AVX-512F", kAvx512Chains, 16, kFused, {"avx512f"}, run_avx512_fp32),
      vectors("fp64", "AVX-512F", kAvx512Chains, 8, kFused, {"avx512f"}, run_avx512_fp64),
      vectors("bf16", "AVX512-BF16", kAvx512Chains, 16, Arithmetic::dot_pairs, {"avx512f", "avx512_bf16"},
              run_avx512_bf16),
      vectors("fp16", "AVX512-FP16", kAvx512Chains, 32, kFused, {"avx512f", "avx512_fp16"}, run_avx512_fp16),
      {.dtype = "bf16",
       .set = "AMX-BF16",
       .arithmetic = Arithmetic::tile_of_pairs,
       .chains = kTileChains,
       .lanes = kTileSums,
       .round_flop = 2.0 * kTileSums * 32 * kTileChains,
       .sample_rounds = kTileRounds,
       .needs = {"amx_tile", "amx_bf16"},
       .may_run = may_use_tiles,
       .run = run_amx_bf16}};
}

}  // namespace rooflm::measure

#endif
