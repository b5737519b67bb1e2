// Which hardware counters of a GPU answer which question.
#pragma once

#include <span>

#include "trace/device_counters.h"

namespace rooflm::trace {

/// Counter sets of NVIDIA GPUs, most important first. Each set is counted separately, so a set that fails
/// does not affect the others:
/// - "memory": bytes and sectors at DRAM, L2 and L1 with hits; bf16 work of the tensor cores; cycles,
///   instructions, warps: 2 passes on GH100;
/// - "tensor": work of the tensor cores in the other precisions;
/// - "cores": work of the CUDA cores by precision, loads and stores as programs request them;
/// - "stalls": stall reasons of warps.
/// A multiply-add is 2 FLOP in all of them. (Tensor-core counters already count this way: a matmul of 4096 x
/// 4096 x 4096 counts 1.374e11 on an H100.) 16-bit instructions of the CUDA cores count both numbers of a
/// register. Compilers also use them to load constants, so "fp16_flop" is seldom 0.
std::span<const CounterSet> counter_sets();

}  // namespace rooflm::trace
