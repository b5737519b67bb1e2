// Stacks in a stream: each frame a text that names the one of its caller, so that stacks share what they have
// in common.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "inject/stream_writer.h"

namespace rooflm::inject {

void append_hex(std::string& text, std::uintptr_t number);

/// For one thread.
class StackNodes {
 public:
  explicit StackNodes(StreamWriter& writer) : writer_(writer) {}

  struct Node {
    std::uint32_t number = 0;  ///< of its text
    bool is_new = false;
  };
  /// Of `caller`, a number (0: nobody), a frame of native code, or, with an offset, of Python's.
  Node of(std::uint32_t caller, std::uintptr_t address);
  Node of(std::uint32_t caller, std::uintptr_t code, std::uintptr_t offset);

 private:
  using Key = std::array<std::uintptr_t, 3>;
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  Node add(const Key& key, bool is_python);

  StreamWriter& writer_;
  std::unordered_map<Key, std::uint32_t, Hash> numbers_{};
};

}  // namespace rooflm::inject
