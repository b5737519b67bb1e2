// GEMMs of bf16 by AMX tiles against oneDNN and against the tile registers alone.
#pragma once

namespace rooflm::bench {

/// Prints, for cubes and for gpt2's layers with 256 tokens, the rate of the registers, of oneDNN and of ours,
/// all three in turn, and what single parts of ours reach. Under a minute on two threads.
void run_amx_gemms();

}  // namespace rooflm::bench
