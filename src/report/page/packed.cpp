// Compact encoding of integers, for the columns of the document's timeline.
#include "report/page/packed.h"

#include <algorithm>
#include <cstddef>

namespace rooflm::report {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr std::size_t kGroup = 3;
  std::string out;
  out.reserve((bytes.size() + kGroup - 1) / kGroup * (kGroup + 1));
  for (std::size_t i = 0; i < bytes.size(); i += kGroup) {
    std::uint32_t bits = 0;
    const std::size_t count = std::min(kGroup, bytes.size() - i);
    for (std::size_t k = 0; k < kGroup; ++k) {
      bits = bits << 8U | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k <= kGroup; ++k) {
      out += k <= count ? kLetters[bits >> (18U - 6U * k) & 63U] : '=';
    }
  }
  return out;
}

std::string pack(std::span<const std::int64_t> values) {
  constexpr std::uint64_t kMore = 0x80;
  constexpr unsigned kBits = 7;
  std::string bytes;
  bytes.reserve(2 * values.size());
  std::uint64_t before = 0;
  for (const std::int64_t value : values) {
    const std::uint64_t step = static_cast<std::uint64_t>(value) - before;
    before = static_cast<std::uint64_t>(value);
    const bool is_negative = static_cast<std::int64_t>(step) < 0;
    std::uint64_t coded = step << 1U ^ (is_negative ? ~std::uint64_t{0} : 0);
    for (; coded >= kMore; coded >>= kBits) bytes += static_cast<char>(coded | kMore);
    bytes += static_cast<char>(coded);
  }
  return base64(bytes);
}

}  // namespace rooflm::report
