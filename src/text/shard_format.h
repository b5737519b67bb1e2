// The two kinds of llm.c's token files.
#pragma once

#include <array>
#include <cstdint>

#include "text/shard.h"

namespace rooflm::text {

/// Header words 0 and 1, and what follows the header.
struct ShardKind {
  std::int32_t magic;
  std::int32_t version;
  TokenWidth width;
};

inline constexpr std::array<ShardKind, 2> kShardKinds = {{
    {20240520, 1, TokenWidth::u16},
    {20240801, 7, TokenWidth::u32},
}};

}  // namespace rooflm::text
