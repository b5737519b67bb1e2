// From a copy of a thread's stack to the addresses of its frames.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inject/frame_rules.h"
#include "inject/stack_capture.h"

namespace rooflm::inject {

/// Works on copies, in a thread of the recorder's own: whatever tables or a stack say, nothing is read but
/// the copy and the tables of files that are loaded, which stay as long as they are read.
class Unwinder {
 public:
  /// Addresses of the frames, the innermost first: where it was interrupted, then where calls return to. Ends
  /// where no table says how to go on.
  std::vector<std::uintptr_t> addresses_of(const CapturedStack& stack);

 private:
  struct File {
    std::uintptr_t begin = 0, end = 0;  ///< of all its segments
    FrameTables tables{};
  };
  friend struct LoadedFiles;
  void walk(const CapturedStack& stack, std::vector<std::uintptr_t>& addresses) const;
  [[nodiscard]] const File* file_of(std::uintptr_t address) const;

  std::vector<File> files_;  ///< by address
  unsigned long long added_ = 0, removed_ = 0;
};

}  // namespace rooflm::inject
