// From a copy of a thread's stack to the addresses of its frames.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "inject/frame_rules.h"
#include "inject/stack_capture.h"

namespace rooflm::inject {

/// Works on copies, in a thread of the recorder's own: whatever tables or a stack say, nothing is read but
/// the copy and the tables of files that are loaded, which stay as long as they are read.
class Unwinder {
 public:
  /// Addresses of the frames, the innermost first: where it was interrupted, then where calls return to. Ends
  /// where no table says how to go on, and, of a stack with frames of Python, before the function of
  /// `set_interpreter`: its frames are those.
  std::vector<std::uintptr_t> addresses_of(const CapturedStack& stack);
  /// An address within the function that runs Python; 0 for none.
  void set_interpreter(std::uintptr_t address) { interpreter_ = address; }

 private:
  struct File {
    std::uintptr_t begin = 0, end = 0;  ///< of all its segments
    FrameTables tables{};
  };
  friend struct LoadedFiles;
  void walk(const CapturedStack& stack, std::vector<std::uintptr_t>& addresses);
  [[nodiscard]] const File* file_of(std::uintptr_t address) const;
  const std::optional<Rules>& rules_of(const File& file, std::uintptr_t address);
  void forget();

  std::vector<File> files_;                                           ///< by address
  std::unordered_map<std::uintptr_t, std::optional<Rules>> rules_{};  ///< of addresses in these files
  std::atomic<std::uintptr_t> interpreter_{0};
  std::optional<std::array<std::uintptr_t, 2>> interpreters_{};  ///< its function
  unsigned long long added_ = 0, removed_ = 0;
};

}  // namespace rooflm::inject
