// Where the frame of a function lies whose frame pointer nobody knows.
#include "inject/frame_search.h"

#include <cstring>
#include <span>

#include "inject/stack_capture.h"

namespace rooflm::inject {
namespace {

constexpr std::size_t kWord = sizeof(std::uintptr_t);
constexpr std::size_t kDisplacement = sizeof(std::int32_t);

using Bytes = std::array<std::uint8_t, 16>;

/// `base` and the four signed bytes at `at`.
std::uintptr_t displaced(std::uintptr_t base, const std::uint8_t* at) {
  std::int32_t offset = 0;
  std::memcpy(&offset, at, sizeof(offset));
  return base + static_cast<std::uintptr_t>(static_cast<std::intptr_t>(offset));
}

std::optional<std::uintptr_t> slot_at(std::uintptr_t address) {
  std::uintptr_t word = 0;
  return peek(address, &word, sizeof(word)) ? std::optional(word) : std::nullopt;
}

/// Where the stub of a linker's table jumps to: `jmp *slot(%rip)`, perhaps after `endbr64` and with a prefix.
/// An address that is no stub is its own.
std::uintptr_t behind_stub(std::uintptr_t address) {
  constexpr std::size_t kRead = 12;
  constexpr std::array<std::uint8_t, 4> kMark = {0xf3, 0x0f, 0x1e, 0xfa};  // endbr64
  Bytes code{};
  if (!peek(address, code.data(), kRead)) return address;
  std::size_t at = std::memcmp(code.data(), kMark.data(), kMark.size()) == 0 ? kMark.size() : 0;
  if (code.at(at) == 0xf2) ++at;  // bnd
  if (code.at(at) != 0xff || code.at(at + 1) != 0x25) return address;
  const std::uintptr_t next = address + at + 2 + kDisplacement;
  return slot_at(displaced(next, &code.at(at + 2))).value_or(address);
}

/// What the call right before `returns_to` calls; nothing where no call is there, or nobody can tell.
std::optional<std::uintptr_t> callee_before(std::uintptr_t returns_to) {
  constexpr std::size_t kLongest = 6;
  Bytes code{};
  if (returns_to < kLongest || !peek(returns_to - kLongest, code.data(), kLongest)) return std::nullopt;
  const std::uint8_t* displacement = &code.at(kLongest - kDisplacement);
  if (code[0] == 0xff && code[1] == 0x15)
    return slot_at(displaced(returns_to, displacement));                         // call *slot(%rip)
  if (code[1] == 0xe8) return behind_stub(displaced(returns_to, displacement));  // call
  return std::nullopt;
}

}  // namespace

std::optional<std::uintptr_t> find_frame_pointer(std::uintptr_t stack_pointer,
                                                 const std::array<std::uintptr_t, 2>& function,
                                                 const ReadWord& read_word,
                                                 const std::function<bool(std::uintptr_t)>& is_code) {
  constexpr std::uintptr_t kFarthest = 4096;
  for (std::uintptr_t at = stack_pointer; at < stack_pointer + kFarthest; at += kWord) {
    const auto word = read_word(at);
    if (!word) return std::nullopt;
    if (!is_code(*word)) continue;
    const auto callee = callee_before(*word);
    if (callee && *callee >= function[0] && *callee < function[1]) return at - kWord;
  }
  return std::nullopt;
}

}  // namespace rooflm::inject
