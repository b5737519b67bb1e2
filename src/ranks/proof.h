// How a process shows that it knows the key of a job without sending it (for this room, and for who makes
// keys).
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace rooflm::ranks {

/// The memory of a value without pointers.
template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// HMAC-SHA-256.
using Proof = std::array<std::byte, 32>;
/// A number that is used once, so that no proof is of use twice.
using Nonce = std::array<std::byte, 32>;

/// HMAC of `purpose` and `parts`, one after the other; callers give parts of fixed sizes.
Proof prove(std::string_view key, std::string_view purpose,
            std::initializer_list<std::span<const std::byte>> parts);
/// Takes the same time wherever they differ.
bool is_same(const Proof& a, const Proof& b);

/// From the system's random numbers. Throws core::Unavailable.
Nonce make_nonce();
/// 128 random bits in hexadecimal digits: a key that nobody guesses.
std::string make_key();

}  // namespace rooflm::ranks
