// Tiles of rows that are sorted by expert. No tile has rows of two experts, so that each expert's last one
// may be a part of a tile.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/reduce.cuh"

namespace rooflm::backends::cuda {

struct ExpertTile {
  int expert = -1;  ///< -1: there is no such tile
  int row = 0;      ///< the tile's first
  int end = 0;      ///< behind the last row of the expert
};

/// The most tiles of `rows` rows, however many each expert has.
constexpr std::int64_t most_expert_tiles(std::int64_t rows, std::int64_t experts, std::int64_t tile) {
  return rows / tile + (rows < experts ? rows : experts);
}

/// Tile `index` of all experts' tiles of kTile rows. All lanes of a warp ask for the same one.
template <int kTile>
__device__ ExpertTile find_expert_tile(const std::int32_t* offsets, int experts, int index) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int before = 0;  // tiles
  for (int first = 0; first < experts; first += kWarp) {
    const int expert = first + lane;
    const int begin = expert < experts ? offsets[expert] : 0;
    const int end = expert < experts ? offsets[expert + 1] : 0;
    const int tiles = (end - begin + kTile - 1) / kTile;
    int up_to = tiles;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(kAllLanes, up_to, step);
      if (lane >= step) up_to += other;
    }
    const unsigned behind = __ballot_sync(kAllLanes, before + up_to > index);
    if (behind != 0) {
      const int found = __ffs(static_cast<int>(behind)) - 1;
      const int in_expert = index - before - (up_to - tiles);  // of the lane's expert
      return {.expert = first + found,
              .row = __shfl_sync(kAllLanes, begin + in_expert * kTile, found),
              .end = __shfl_sync(kAllLanes, end, found)};
    }
    before += __shfl_sync(kAllLanes, up_to, kWarp - 1);
  }
  return {};
}

}  // namespace rooflm::backends::cuda
