// The loops on registers of a GPU compute what they say: short runs against exact sums, per instruction.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/kernels/instruction_peaks.h"
#include "backends/cuda/peaks.h"
#include "tests/backends/cuda_testing.h"

namespace rooflm::tests {
namespace {

using namespace backends::cuda;  // NOLINT(google-build-using-namespace): the launchers are what is tested
using core::DType;

/// -1, -1/2, 1/2 or 1: every dtype holds them and short sums of their products.
std::vector<double> few_values(int count, std::uint32_t state) {
  constexpr std::array kValues = {-1.0, -0.5, 0.5, 1.0};
  std::vector<double> values;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    values.push_back(kValues.at(state >> 30U));
  }
  return values;
}

bool is_of_cuda_cores(Instruction instruction) {
  return instruction == Instruction::fma_fp32 || instruction == Instruction::fma2_fp16 ||
         instruction == Instruction::fma2_bf16;
}

/// As instruction_peaks.h says.
double expected(Instruction instruction, const InstructionShape& shape, const std::vector<double>& a,
                const std::vector<double>& b, int rounds, int group, int row, int col) {
  double sum = 0;
  if (!is_of_cuda_cores(instruction)) {
    for (int i = 0; i < shape.k; ++i) sum += a[at(row * shape.k + i)] * b[at(col * shape.k + i)];
    return rounds * shape.passes * sum;
  }
  const int lanes = instruction == Instruction::fma_fp32 ? 1 : 2;
  for (int i = 0; i < shape.k; ++i) {
    const std::size_t place = at((group * shape.k + i) * lanes + col % lanes);
    sum += a[place] * b[place];
  }
  return b[at(kFactorsB / 2 + col)] + rounds * shape.passes * sum;
}

void check_loop(Instruction instruction, int rounds) {
  constexpr int kBlocks = 3;
  const InstructionShape shape = instruction_shape(instruction);
  const auto a = few_values(kFactorsA, 1);
  const auto b = few_values(kFactorsB, 2);
  const DeviceArray device_a(DType::f32, a);
  const DeviceArray device_b(DType::f32, b);
  const std::int64_t per_group = std::int64_t{shape.m} * shape.n;
  const DeviceArray sums(DType::f32, at(kBlocks * shape.groups * per_group));
  launch_instruction_loop(nullptr, instruction, kBlocks, rounds,
                          {.a = device_a.floats(), .b = device_b.floats()}, sums.floats());
  check_cuda(cudaDeviceSynchronize(), "running the loop");
  const auto found = sums.read();
  int wrong = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(found.size()); ++i) {
    const auto group = static_cast<int>(i / per_group % shape.groups);
    const auto row = static_cast<int>(i % per_group / shape.n);
    const double want = expected(instruction, shape, a, b, rounds, group, row, static_cast<int>(i % shape.n));
    if (found[at(i)] != want && ++wrong == 1) {
      ADD_FAILURE() << rounds << " rounds, group " << group << ", row " << row << ", column " << i % shape.n
                    << ": " << found[at(i)] << " instead of " << want;
    }
  }
  EXPECT_EQ(wrong, 0) << "of " << found.size();
}

TEST_F(CudaKernels, InstructionLoopsOfCudaCores) {
  // Four passes of up to four products each: bf16 keeps multiples of 1/4 up to 64.
  for (const int rounds : {0, 1, 3}) {
    check_loop(Instruction::fma_fp32, rounds);
    check_loop(Instruction::fma2_fp16, rounds);
    check_loop(Instruction::fma2_bf16, rounds);
  }
}

TEST_F(CudaKernels, InstructionLoopsOfTensorCores) {
  for (const int rounds : {0, 1, 5}) {
    check_loop(Instruction::mma_tf32, rounds);
    check_loop(Instruction::mma_fp16, rounds);
    check_loop(Instruction::mma_bf16, rounds);
  }
}

TEST_F(CudaKernels, InstructionLoopsOfWarpGroups) {
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
             "asking for the architecture");
  if (major != 9 || !has_warp_group_code()) GTEST_SKIP() << "wgmma needs a GPU of compute capability 9.0";
  for (const int rounds : {0, 1, 5}) {
    check_loop(Instruction::wgmma_tf32, rounds);
    check_loop(Instruction::wgmma_fp16, rounds);
    check_loop(Instruction::wgmma_bf16, rounds);
    check_loop(Instruction::wgmma_fp8, rounds);
  }
}

TEST_F(CudaKernels, InstructionPeaksAreLoopsOrAReason) {
  for (const char* dtype : {"fp32", "bf16x6", "tf32", "bf16", "fp16", "fp8", "fp4"}) {
    const InstructionLoops found = instruction_loops(0, dtype);
    EXPECT_EQ(found.loops.empty(), !found.missing.empty()) << dtype;
    for (const TimedLoop& loop : found.loops) {
      EXPECT_EQ(loop.what, "instruction");
      EXPECT_GT(loop.amount / loop.run_s(), 1e10) << loop.problem;
    }
  }
}

}  // namespace
}  // namespace rooflm::tests
