// Micro-benchmarks of the instruction peaks of a GPU.
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/kernels/instruction_peaks.h"
#include "backends/cuda/peaks.h"
#include "backends/cuda/peaks_bench.h"

namespace rooflm::backends::cuda {
namespace {

struct Row {
  Instruction instruction;
  const char* dtype;
  const char* problem;
  double flop_per_cycle;  ///< approximate rate of a multiprocessor; determines the length of a sample
  bool is_of_warp_group = false;
  double products = 1;  ///< of instructions for one of the dtype
};
constexpr std::array kRows = {
    Row{Instruction::fma_fp32, "fp32", "FFMA, 16 chains", 256},
    Row{Instruction::wgmma_bf16, "bf16x6", "wgmma m64n256k16 bf16, six for one", 4096, true, 6},
    Row{Instruction::mma_tf32, "tf32", "mma.sync m16n8k8", 1024},
    Row{Instruction::wgmma_tf32, "tf32", "wgmma m64n256k8", 2048, true},
    Row{Instruction::fma2_bf16, "bf16", "HFMA2.BF16, 16 chains", 512},
    Row{Instruction::mma_bf16, "bf16", "mma.sync m16n8k16", 2048},
    Row{Instruction::wgmma_bf16, "bf16", "wgmma m64n256k16", 4096, true},
    Row{Instruction::fma2_fp16, "fp16", "HFMA2, 16 chains", 512},
    Row{Instruction::mma_fp16, "fp16", "mma.sync m16n8k16", 2048},
    Row{Instruction::wgmma_fp16, "fp16", "wgmma m64n256k16", 4096, true},
    Row{Instruction::wgmma_fp8, "fp8", "wgmma m64n256k32 e4m3", 8192, true},
};

int compute_major(int index) {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index),
        "asking for the architecture");
  return major;
}

constexpr int kHopper = 9;

/// Tensor cores of data-centre Blackwell use other instructions; Hopper's run only from sm_90a code.
std::string why_missing(const std::string& dtype, int major) {
  constexpr int kFirstWithTensorMemory = 10;
  constexpr int kLastWithTensorMemory = 11;
  if (dtype == "fp32") return {};
  if (major >= kFirstWithTensorMemory && major <= kLastWithTensorMemory) {
    return "the tensor cores of this GPU are fastest with tcgen05, which has no loop here";
  }
  if (major == kHopper && !has_warp_group_code()) {
    return "the tensor cores of this GPU are fastest with wgmma, and rooflm was built without code for "
           "sm_90a";
  }
  if ((dtype == "fp8" || dtype == "bf16x6") && major != kHopper)
    return dtype + " has a loop for wgmma alone, which this GPU does not have";
  return {};
}

/// Pseudo-random multiples of 1/8 between -1 and 1: exact in every dtype, and sums stay finite.
std::vector<float> factors() {
  constexpr float kStep = 0.125F;
  constexpr std::uint32_t kValues = 17;
  constexpr float kMiddle = 8;
  std::vector<float> values(kFactorsA + kFactorsB);
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes
    value = kStep * (static_cast<float>((state >> 16U) % kValues) - kMiddle);
  }
  return values;
}

TimedLoop loop_of(const Row& row, const std::shared_ptr<Bench>& bench) {
  constexpr double kCycles = 4e6;  // two milliseconds
  const InstructionShape shape = instruction_shape(row.instruction);
  const double flop_of_sm = shape.round_flop() * shape.blocks_per_sm;
  const int rounds = static_cast<int>(std::lround(kCycles * row.flop_per_cycle / flop_of_sm));
  const auto blocks = static_cast<unsigned>(shape.blocks_per_sm * bench->sm_count());
  return {.what = "instruction",
          .level = "",
          .problem = row.problem,
          .amount = shape.round_flop() * rounds * blocks / row.products,
          .run_s = [bench, instruction = row.instruction, rounds, blocks] {
            const InstructionFactors from{.a = bench->floats(0), .b = bench->floats(kFactorsA)};
            return bench->time_s([&](cudaStream_t stream) {
              launch_instruction_loop(stream, instruction, blocks, rounds, from, nullptr);
            });
          }};
}

}  // namespace

InstructionLoops instruction_loops(int index, const std::string& dtype) {
  const int major = compute_major(index);
  InstructionLoops found{.loops = {}, .missing = why_missing(dtype, major)};
  if (!found.missing.empty()) return found;
  const std::vector<float> values = factors();
  const auto bench = std::make_shared<Bench>(index, values.size() * sizeof(float));
  check(cudaMemcpyAsync(bench->floats(0), values.data(), values.size() * sizeof(float),
                        cudaMemcpyHostToDevice, bench->stream()),
        "copying factors");
  check(cudaStreamSynchronize(bench->stream()), "copying factors");
  for (const Row& row : kRows) {
    if (row.dtype != dtype || (row.is_of_warp_group && major != kHopper)) continue;
    found.loops.push_back(loop_of(row, bench));
  }
  if (found.loops.empty()) found.missing = "no loop for " + dtype;
  return found;
}

}  // namespace rooflm::backends::cuda
