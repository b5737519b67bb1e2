// The instruction peak of a processor: how fast its multiply-add instructions run on registers alone.
//
// The rate of matmuls is what our kernels reach; the instruction peak is what no kernel can exceed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "measure/machine.h"
#include "measure/peaks.h"

namespace rooflm::measure {

/// What a loop loads into registers before its first round, and stores after its last one. `sums` holds one
/// register (or tile) after the other, one per chain.
struct InstructionOperands {
  static constexpr std::size_t kTileBytes = 1024;  ///< 16 rows of 64 bytes: also the largest register
  alignas(64) std::array<std::byte, kTileBytes> a{};
  alignas(64) std::array<std::byte, kTileBytes> b{};
  alignas(64) std::array<std::byte, 6 * kTileBytes> sums{};
};

/// What one instruction does to the sums s of its chain.
enum class Arithmetic : std::uint8_t {
  multiply_add,      ///< s[i] += a[i] b[i]
  multiply_and_add,  ///< without fused multiply-add: s[i] *= a[i] in the first half of the chains, s[i] +=
                     /// < b[i] in the second
  dot_pairs,         ///< s[i] += a[2i] b[2i] + a[2i+1] b[2i+1], s in fp32
  tile_of_pairs,  ///< s[i][j] += sum over k of a[i][2k] b[k][2j] + a[i][2k+1] b[k][2j+1], 16 x 16 x 32, s in
                  /// < fp32
};

/// One multiply-add instruction in a loop that touches no memory. A round runs the instruction once per
/// chain; chains do not depend on each other, and there are enough of them to hide the instruction's latency.
struct InstructionLoop {
  const char* dtype = "";  ///< of the factors: "fp32"
  const char* set = "";    ///< "AVX2 FMA"
  Arithmetic arithmetic = Arithmetic::multiply_add;
  int chains = 0;
  int lanes = 0;                     ///< sums per chain
  double round_flop = 0;             ///< of one thread; a multiply-add is 2
  std::int64_t sample_rounds = 0;    ///< about four million cycles
  std::vector<const char*> needs{};  ///< features of the processor, as in Processor::features
  bool (*may_run)() = nullptr;       ///< asks the system for the registers; nullptr: nothing to ask for
  void (*run)(std::int64_t rounds, InstructionOperands& operands) = nullptr;
};

/// All loops that this binary holds, whatever processor it was compiled for.
std::span<const InstructionLoop> instruction_loops();

/// Why the loop cannot run here: "this processor has no avx512f"; "" when it can.
std::string why_missing(const InstructionLoop& loop, const Processor& processor);

/// Factors and first sums for a loop: multiples of 1/8 between -1 and 1 that look random, so that short runs
/// are exact and long ones neither overflow nor become denormal.
InstructionOperands make_operands(const InstructionLoop& loop);

/// The instruction peak of `dtype` ("fp32") with `threads` threads: each instruction set of this processor
/// runs for options.seconds, and the one with the highest median rate counts; Peak::problem names it and the
/// others. Time that other programs had the processors is left out of the rate: it is a limit. Absent where
/// the processor has no multiply-add of this dtype.
std::optional<Peak> measure_instruction_peak(std::string_view dtype, int threads,
                                             const SamplingOptions& options);

/// Why there is no instruction peak of `dtype` here: "no fp16 arithmetic (AVX512-FP16): matmuls run in
/// fp32";
/// "" when there is one.
std::string why_no_instruction_peak(std::string_view dtype);

}  // namespace rooflm::measure
