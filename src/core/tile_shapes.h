// The configuration of AMX's tile registers.
#pragma once

#include <cstdint>

namespace rooflm::core {

/// What ldtilecfg reads: palette 1, eight tiles of 16 rows of 64 bytes. Source: Intel's manual, "LDTILECFG".
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t first_row = 0;
  std::uint8_t unused[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);
/// Not to be copied to a stack: g++ 12's _tile_loadconfig tells the compiler only of its first eight bytes.
inline constexpr TileShapes kTileShapes;

}  // namespace rooflm::core
