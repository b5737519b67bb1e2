// The ways in which a device can run the collectives of data-parallel ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rooflm::backends {

/// usual: the library's default. few_blocks: kernels with few blocks, which leave the other multiprocessors
/// to overlapping matmuls. copy_engine: copies without kernels, and sums in our own kernel, in fp32 and rank
/// order. peer_memory: ranks map each other's memory. The update reads the gradients of all ranks where they
/// are and adds them up (passes/sum_in_update.h), gathers are copies from the other ranks, and everything
/// else is as usual. Sums over more than two ranks may differ in the last bit between ways; sums over two do
/// not.
enum class CollectiveWay : std::uint8_t { usual, few_blocks, copy_engine, peer_memory };
inline constexpr std::array kCollectiveWays = {CollectiveWay::usual, CollectiveWay::few_blocks,
                                               CollectiveWay::copy_engine, CollectiveWay::peer_memory};

/// "default", "few-blocks", "copy-engine", "peer-memory".
std::string_view name_of(CollectiveWay way);

/// What a run asks for; nullopt: the fastest, by measurement.
using CollectiveWish = std::optional<CollectiveWay>;
/// The names above, and "auto".
std::string_view name_of(CollectiveWish wish);
/// Throws core::UsageError with a suggestion.
CollectiveWish parse_collectives(std::string_view name);

}  // namespace rooflm::backends
