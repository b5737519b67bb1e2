// Loops of multiply-adds on registers (for warp groups, on operands that stay in shared memory): the
// instruction peak of a GPU. The loops do not access device memory between the first and the last round.
//
// Each group of threads (a thread, a warp or a warp group) holds sums C [m][n]. A pass adds A B^T to them, A
// [m][k] and B [n][k]. Operands are given in fp32 and rounded to the instruction's dtype. Sums are fp32,
// except for `fma2`, which keeps them in the dtype.
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
  wgmma_tf32,  ///< tensor cores, by a warp group, operands in shared memory; sm_90a only
  wgmma_fp16,
  wgmma_bf16,
  wgmma_fp8,  ///< e4m3
};

/// The work of a launch.
struct InstructionShape {
  int threads = 0;        ///< threads per block
  int blocks_per_sm = 0;  ///< resident blocks per multiprocessor
  int groups = 0;         ///< groups per block
  int m = 0, n = 0, k = 0;
  int passes = 0;  ///< passes per round
  /// FLOP of one block and round; a multiply-add is 2. A thread of `fma` has n chains that each add all k
  /// products.
  [[nodiscard]] double round_flop() const {
    return 2.0 * m * n * k * static_cast<double>(passes) * static_cast<double>(groups);
  }
};
InstructionShape instruction_shape(Instruction instruction);

/// Minimum length of the operand arrays.
inline constexpr int kFactorsA = 64 * 128;
inline constexpr int kFactorsB = 256 * 128;

/// Layout of the operands: element (row, i) of A is a[row * k + i], of B b[row * k + i]. For `fma` thread t
/// reads a[t * w k + i w + l], and the same of b, for product i of lane l of w (1 or 2); its sum c w + l
/// starts at b[kFactorsB / 2 + c w + l]. All other sums start at 0.
struct InstructionFactors {
  const float* a = nullptr;
  const float* b = nullptr;
};

/// Runs `rounds` rounds in each of `blocks` blocks. Stores the sums in `sums` [block][group][m][n], fp32,
/// unless it is nullptr. Only submits. Throws std::runtime_error if the launch fails, core::Unavailable for
/// wgmma in a build without sm_90a code. On GPUs other than Hopper wgmma does nothing.
void launch_instruction_loop(Stream stream, Instruction instruction, unsigned blocks, int rounds,
                             const InstructionFactors& factors, float* sums);

/// Whether this build has code for warp-group instructions (wgmma).
bool has_warp_group_code();

}  // namespace rooflm::backends::cuda
