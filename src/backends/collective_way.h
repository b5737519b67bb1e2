// The ways in which a device can run the collectives of data-parallel ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/named.h"

namespace rooflm::backends {

using core::name_of;

/// usual: the library's default. few_blocks: kernels with few blocks, which leave the other multiprocessors
/// to overlapping matmuls. copy_engine: copies without kernels, and sums in our own kernel, in fp32 and rank
/// order. peer_memory: ranks map each other's memory. The update reads the gradients of all ranks where they
/// are and adds them up (passes/sum_in_update.h), gathers are copies from the other ranks, and everything
/// else is as usual. Sums over more than two ranks may differ in the last bit between ways; sums over two do
/// not.
enum class CollectiveWay : std::uint8_t { usual, few_blocks, copy_engine, peer_memory };
inline constexpr std::array kCollectiveWays = {CollectiveWay::usual, CollectiveWay::few_blocks,
                                               CollectiveWay::copy_engine, CollectiveWay::peer_memory};

/// What a run asks for; nullopt: the fastest, by measurement. A way has the same names.
using CollectiveWish = std::optional<CollectiveWay>;
constexpr auto names_of(CollectiveWish) {
  return core::named<CollectiveWish>("--collectives", {{std::nullopt, "auto"},
                                                       {CollectiveWay::usual, "default"},
                                                       {CollectiveWay::few_blocks, "few-blocks"},
                                                       {CollectiveWay::copy_engine, "copy-engine"},
                                                       {CollectiveWay::peer_memory, "peer-memory"}});
}

}  // namespace rooflm::backends
