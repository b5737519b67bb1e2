// Which hardware counters of a GPU answer which question.
#pragma once

#include <span>

#include "trace/device_counters.h"

namespace rooflm::trace {

/// Sets of counters of NVIDIA GPUs, the most wanted first. Each is counted for itself, so that one that
/// cannot be counted takes no other along:
/// - "memory": bytes and sectors at DRAM, L2 and L1 with hits; bf16 work of the tensor cores; cycles,
///   instructions, warps: 2 passes on GH100;
/// - "tensor": the tensor cores' work in the other precisions;
/// - "cores": work of the CUDA cores by precision, loads and stores as programs ask for them;
/// - "stalls": what warps wait for.
/// A multiply-add is 2 flop in all of them (the tensor cores' counters count so by themselves: a product of
/// 4096 x 4096 x 4096 counts 1.374e11 on an H100). Of 16-bit instructions of the CUDA cores both numbers of a
/// register count; compilers also use them to load constants, so "fp16_flop" is seldom 0.
std::span<const CounterSet> counter_sets();

}  // namespace rooflm::trace
