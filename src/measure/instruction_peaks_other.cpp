// Multiply-add loops on the registers of processors that are no x86-64: NEON of 64-bit ARM, or none.
#include "measure/instruction_loops.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace rooflm::measure {
namespace {

/// Of 32 registers two hold the factors. Four cycles of latency, up to four units: 16 are enough.
constexpr int kChains = 24;
constexpr std::int64_t kRounds = 8'000'000 / kChains;

void run_neon_fp32(std::int64_t rounds, InstructionOperands& io) {
  const float32x4_t a = vld1q_f32(reinterpret_cast<const float*>(io.a.data()));
  const float32x4_t b = vld1q_f32(reinterpret_cast<const float*>(io.b.data()));
  auto* sums = reinterpret_cast<float*>(io.sums.data());
  float32x4_t s[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) s[i] = vld1q_f32(sums + 4 * i);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) s[i] = vfmaq_f32(s[i], a, b);
  }
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) vst1q_f32(sums + 4 * i, s[i]);
}

void run_neon_fp64(std::int64_t rounds, InstructionOperands& io) {
  const float64x2_t a = vld1q_f64(reinterpret_cast<const double*>(io.a.data()));
  const float64x2_t b = vld1q_f64(reinterpret_cast<const double*>(io.b.data()));
  auto* sums = reinterpret_cast<double*>(io.sums.data());
  float64x2_t s[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) s[i] = vld1q_f64(sums + 2 * i);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) s[i] = vfmaq_f64(s[i], a, b);
  }
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) vst1q_f64(sums + 2 * i, s[i]);
}

}  // namespace

std::vector<InstructionLoop> loops_of_architecture() {
  return {{.dtype = "fp32",
           .set = "NEON FMLA",
           .chains = kChains,
           .lanes = 4,
           .round_flop = 2.0 * 4 * kChains,
           .sample_rounds = kRounds,
           .run = run_neon_fp32},
          {.dtype = "fp64",
           .set = "NEON FMLA",
           .chains = kChains,
           .lanes = 2,
           .round_flop = 2.0 * 2 * kChains,
           .sample_rounds = kRounds,
           .run = run_neon_fp64}};
}

}  // namespace rooflm::measure

#elif !defined(__x86_64__)

namespace rooflm::measure {

std::vector<InstructionLoop> loops_of_architecture() { return {}; }

}  // namespace rooflm::measure

#endif
