// Stacks in a stream: each frame a text that names the one of its caller.
#include "inject/stack_nodes.h"

#include <charconv>

namespace rooflm::inject {

void append_hex(std::string& text, std::uintptr_t number) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
  text.append(digits.data(), end);
}

StackNodes::Node StackNodes::of(std::uint32_t caller, std::uintptr_t address) {
  return add({caller, address, ~std::uintptr_t{0}}, false);
}

StackNodes::Node StackNodes::of(std::uint32_t caller, std::uintptr_t code, std::uintptr_t offset) {
  return add({caller, code, offset}, true);
}

std::size_t StackNodes::Hash::operator()(const Key& key) const {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15;
  std::uint64_t hash = 0;
  for (const std::uintptr_t word : key) hash = (hash ^ word ^ (hash >> 32U)) * kFactor;
  return hash ^ (hash >> 29U);
}

/// "CALLER CODE+OFFSET" or "CALLER ADDRESS", hexadecimal.
StackNodes::Node StackNodes::add(const Key& key, bool is_python) {
  const auto [entry, is_new] = numbers_.try_emplace(key);
  if (is_new) {
    std::string text;
    append_hex(text, key[0]);
    text += ' ';
    append_hex(text, key[1]);
    if (is_python) {
      text += '+';
      append_hex(text, key[2]);
    }
    entry->second = writer_.text(text);
  }
  return {.number = entry->second, .is_new = is_new};
}

}  // namespace rooflm::inject
