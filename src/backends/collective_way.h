// The ways in which a device can run the collectives of data-parallel ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rooflm::backends {

/// usual: the library's default. few_blocks: kernels with few blocks, which leave the other multiprocessors
/// to overlapping matmuls. copy_engine: copies without kernels, and sums in our own kernel, in fp32 and rank
/// order. Sums over more than two ranks may differ in the last bit between ways; sums over two do not.
enum class CollectiveWay : std::uint8_t { usual, few_blocks, copy_engine };
inline constexpr std::array kCollectiveWays = {CollectiveWay::usual, CollectiveWay::few_blocks,
                                               CollectiveWay::copy_engine};

/// "default", "few-blocks", "copy-engine".
std::string_view name_of(CollectiveWay way);

/// What a run asks for; nullopt: the fastest, by measurement.
using CollectiveWish = std::optional<CollectiveWay>;
/// The names above, and "auto".
std::string_view name_of(CollectiveWish wish);
/// Throws core::UsageError with a suggestion.
CollectiveWish parse_collectives(std::string_view name);

}  // namespace rooflm::backends
