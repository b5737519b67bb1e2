// What ranks of `rooflm launch` say when they fail: launch reads it, and says once what the cause was.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/system/descriptor.h"

namespace rooflm::ranks {

/// The end that launch has: a file without a name, to which all its ranks append.
class LastWords {
 public:
  /// Throws core::Unavailable where there can be no such file.
  LastWords();
  /// To be inherited by the ranks, with the variable that tells them of it.
  [[nodiscard]] int descriptor() const { return file_.get(); }
  [[nodiscard]] std::pair<std::string, std::string> variable() const;
  /// What ranks have said so far, in the order in which they did, and which rank did.
  [[nodiscard]] std::vector<std::pair<std::size_t, std::string>> read() const;

 private:
  core::Descriptor file_;
};

/// The parts of a line that begins with "rank 1 (host)", without its end. False where no launch listens.
/// Takes no memory.
bool tell_launch(std::initializer_list<std::string_view> parts) noexcept;

}  // namespace rooflm::ranks
