// Reading tables of frames: nothing beyond the bytes that they may be in. For files of this folder and their
// tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace rooflm::inject {

/// Thrown for tables that end too early or say what is not known; caught in this room.
struct FrameProblem {};

class FrameBytes {
 public:
  explicit FrameBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  /// From an address within `bytes` on.
  FrameBytes(std::span<const std::byte> bytes, std::uintptr_t address)
      : bytes_(bytes), at_(address - reinterpret_cast<std::uintptr_t>(bytes.data())) {
    if (at_ > bytes_.size()) throw FrameProblem();
  }

  /// Nothing is read beyond so many bytes from here.
  void limit(std::uint64_t length) {
    if (length > bytes_.size() - at_) throw FrameProblem();
    bytes_ = bytes_.first(at_ + length);
  }
  [[nodiscard]] bool is_at_end() const { return at_ >= bytes_.size(); }
  [[nodiscard]] std::uintptr_t address() const {
    return reinterpret_cast<std::uintptr_t>(bytes_.data()) + at_;
  }
  [[nodiscard]] std::span<const std::byte> rest() const { return bytes_.subspan(at_); }
  void skip(std::uint64_t length) { part(length); }
  std::span<const std::byte> part(std::uint64_t length) {
    if (length > bytes_.size() - at_) throw FrameProblem();
    const auto found = bytes_.subspan(at_, length);
    at_ += length;
    return found;
  }

  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, part(sizeof(value)).data(), sizeof(value));
    return value;
  }

  std::uint64_t unsigned_leb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < kBits; shift += kGroup) {
      const auto byte = number<std::uint8_t>();
      value |= static_cast<std::uint64_t>(byte & kValue) << shift;
      if ((byte & kMore) == 0) return value;
    }
    throw FrameProblem();
  }

  std::int64_t signed_leb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < kBits; shift += kGroup) {
      const auto byte = number<std::uint8_t>();
      value |= static_cast<std::uint64_t>(byte & kValue) << shift;
      if ((byte & kMore) != 0) continue;
      constexpr std::uint8_t kNegative = 0x40;
      if ((byte & kNegative) != 0 && shift + kGroup < kBits) value |= ~std::uint64_t{0} << (shift + kGroup);
      return static_cast<std::int64_t>(value);
    }
    throw FrameProblem();
  }

  std::string_view text() {
    const auto left = rest();
    const void* end = std::memchr(left.data(), 0, left.size());
    if (end == nullptr) throw FrameProblem();
    const auto length = static_cast<std::size_t>(static_cast<const std::byte*>(end) - left.data());
    at_ += length + 1;
    return {reinterpret_cast<const char*>(left.data()), length};
  }

  /// A pointer of the encoding DW_EH_PE_*: absolute, or from where it stands.
  std::uintptr_t encoded(std::uint8_t encoding) {
    const std::uintptr_t place = address();
    const auto is_signed = [](auto value) {
      return static_cast<std::uintptr_t>(static_cast<std::intptr_t>(value));
    };
    constexpr unsigned kFormat = 0x0f;
    constexpr unsigned kApplied = 0x70;
    constexpr unsigned kFromHere = 0x10;
    std::uintptr_t value = 0;
    switch (encoding & kFormat) {
      case 0x0:
      case 0x4:
      case 0xc:
        value = number<std::uint64_t>();
        break;
      case 0x1:
        value = unsigned_leb();
        break;
      case 0x2:
        value = number<std::uint16_t>();
        break;
      case 0x3:
        value = number<std::uint32_t>();
        break;
      case 0x9:
        value = is_signed(signed_leb());
        break;
      case 0xa:
        value = is_signed(number<std::int16_t>());
        break;
      case 0xb:
        value = is_signed(number<std::int32_t>());
        break;
      default:
        throw FrameProblem();
    }
    return (encoding & kApplied) == kFromHere ? value + place : value;
  }

 private:
  static constexpr unsigned kBits = 64, kGroup = 7;
  static constexpr std::uint8_t kValue = 0x7f, kMore = 0x80;
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

}  // namespace rooflm::inject
