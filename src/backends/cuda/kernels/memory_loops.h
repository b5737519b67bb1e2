// Loops that only move memory, for measuring bandwidth; and an empty kernel.
//
// Arrays are fp32, aligned to 16 bytes, `count` elements each, a multiple of four. Launchers only submit;
// they throw std::runtime_error when a launch is refused.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/stream.h"

namespace rooflm::backends::cuda {

/// Reads x `passes` times, bypassing L1. In each pass a block reads another part. *sink is written only if a
/// sum has an impossible value, so the loads are not optimised away.
void launch_read_loop(Stream stream, std::int64_t count, int passes, const float* x, float* sink);
/// x = value
void launch_write_loop(Stream stream, std::int64_t count, float value, float* x);
/// y = x, `passes` times
void launch_copy_loop(Stream stream, std::int64_t count, int passes, const float* x, float* y);
/// x = 2 x + 2
void launch_update_loop(Stream stream, std::int64_t count, float* x);
/// An empty kernel with one thread.
void launch_nothing(Stream stream);

}  // namespace rooflm::backends::cuda
