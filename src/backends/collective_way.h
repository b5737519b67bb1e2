// In which ways a device can carry out the collectives of data-parallel ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rooflm::backends {

/// usual: as the library does it by default. few_blocks: by kernels of few blocks, which leave the
/// multiprocessors to products that run beside them. copy_engine: copies without kernels, and sums in a
/// kernel of our own, in fp32 and in the order of ranks. Sums over more than two ranks may differ in their
/// last bit from way to way; sums of two do not.
enum class CollectiveWay : std::uint8_t { usual, few_blocks, copy_engine };
inline constexpr std::array kCollectiveWays = {CollectiveWay::usual, CollectiveWay::few_blocks,
                                               CollectiveWay::copy_engine};

/// "default", "few-blocks", "copy-engine".
std::string_view name_of(CollectiveWay way);

/// What a run asks for: nothing means whichever is the fastest, as measured.
using CollectiveWish = std::optional<CollectiveWay>;
/// The names above, and "auto".
std::string_view name_of(CollectiveWish wish);
/// Throws core::UsageError with a suggestion.
CollectiveWish parse_collectives(std::string_view name);

}  // namespace rooflm::backends
