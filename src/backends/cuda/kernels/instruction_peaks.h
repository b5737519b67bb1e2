// Loops of multiply-adds on registers (and, for warp groups, on operands that lie in shared memory from the
// start): the instruction peak of a GPU. No loop touches device memory between its first round and its last.
//
// Each group of threads (one thread, a warp or a warp group) holds sums C [m][n]; a pass adds A B^T to them,
// A [m][k] and B [n][k]. Factors are given in fp32 and rounded to the instruction's dtype. Sums are fp32, but
// for `fma2`, which keeps them in the dtype.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"

namespace rooflm::backends::cuda {

enum class Instruction : std::uint8_t {
  fma_fp32,   ///< one multiply-add per thread
  fma2_fp16,  ///< two per thread
  fma2_bf16,
  mma_tf32,  ///< tensor cores, by a warp, operands in registers
  mma_fp16,
  mma_bf16,
  wgmma_tf32,  ///< tensor cores, by a warp group, factors in shared memory: sm_90a only
  wgmma_fp16,
  wgmma_bf16,
  wgmma_fp8,  ///< e4m3
};

/// What a launch computes.
struct InstructionShape {
  int threads = 0;        ///< of a block
  int blocks_per_sm = 0;  ///< that fit at once
  int groups = 0;         ///< of a block
  int m = 0, n = 0, k = 0;
  int passes = 0;  ///< of a round
  /// Of one block; a multiply-add is 2. A thread of `fma` has n chains that each add all k products.
  [[nodiscard]] double round_flop() const {
    return 2.0 * m * n * k * static_cast<double>(passes) * static_cast<double>(groups);
  }
};
InstructionShape instruction_shape(Instruction instruction);

/// Elements that the arrays of factors have at least.
inline constexpr int kFactorsA = 64 * 128;
inline constexpr int kFactorsB = 256 * 128;

/// Where factors lie: element (row, i) of A is a[row * k + i], of B b[row * k + i]. For `fma` thread t takes
/// a[t * w k + i w + l] and the same of b for product i of lane l of w (1 or 2), and its sum c w + l begins
/// with b[kFactorsB / 2 + c w + l]; other sums begin with 0.
struct InstructionFactors {
  const float* a = nullptr;
  const float* b = nullptr;
};

/// Runs `rounds` rounds in each of `blocks` blocks. Sums go to `sums` [block][group][m][n], fp32, unless it
/// is nullptr. Only submits; throws std::runtime_error when the launch is refused, core::Unavailable for
/// wgmma in a build without sm_90a code. On other GPUs wgmma does nothing.
void launch_instruction_loop(Stream stream, Instruction instruction, unsigned blocks, int rounds,
                             const InstructionFactors& factors, float* sums);

/// Whether this build has code for the warp-group instructions.
bool has_warp_group_code();

}  // namespace rooflm::backends::cuda
