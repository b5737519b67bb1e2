// Progress and messages: lines on standard error.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "core/system/terminal.h"

namespace rooflm::lab {

/// How much a command says on standard error beside errors.
enum class Talk : std::uint8_t { quiet, normal, verbose };
/// Set once, by main, before a command runs: like the stream that it is about, it belongs to the process.
void set_talk(Talk talk);
Talk talk();

/// Progress and what is worth knowing; nothing with Talk::quiet.
template <class... Args>
void note(fmt::format_string<Args...> format, Args&&... args) {
  if (talk() != Talk::quiet) core::write_message(fmt::format(format, std::forward<Args>(args)...));
}

/// Where values came from and what was decided; only with Talk::verbose.
template <class... Args>
void detail(fmt::format_string<Args...> format, Args&&... args) {
  if (talk() == Talk::verbose) core::write_message(fmt::format(format, std::forward<Args>(args)...));
}

/// While it lives, a line every so often says that something still goes on: work of unknown length that
/// prints nothing before its end.
class StillAt {
 public:
  /// "planning a step": goes before ", 10.0 s so far".
  explicit StillAt(std::string what, std::chrono::milliseconds every = std::chrono::seconds(10));

 private:
  std::jthread thread_;
};

}  // namespace rooflm::lab
