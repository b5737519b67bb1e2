// What a step of a program is taken to be: --steps-by.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rooflm::foreign {

struct StepsBy {
  /// `automatic`: the best of all candidates, or none.
  enum class Kind : std::uint8_t { automatic, optimizer, range, kernels, graph, none };
  Kind kind = Kind::automatic;
  std::string pattern{};  ///< regular expression that names of ranges have to hold

  /// Of "auto", "optimizer", "range:REGEX", "kernels", "graph" and "none". Throws core::UsageError.
  static StepsBy parse(const std::string& text);
};

}  // namespace rooflm::foreign
