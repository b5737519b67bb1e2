// Running somebody else's program as if nobody stood between it and the user.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace rooflm::core {

struct ChildEnd {
  int code = 0;    ///< its exit code
  int signal = 0;  ///< that ended it; 0: none did
};

/// Called while the program runs, with its number.
class ChildProcess {
 public:
  /// Starts `command` (looked for on PATH) with these variables added to the environment; standard input and
  /// outputs are its own. Throws core::InputError where it cannot be started.
  ChildProcess(const std::vector<std::string>& command,
               const std::vector<std::pair<std::string, std::string>>& environment);
  /// Waits for its end. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 that somebody sends to this
  /// process are passed on; what the terminal sends reaches both, and is the program's to answer.
  ChildEnd wait();
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_ = 0;
};

/// Ends this process as `signal` would have. Does not return.
[[noreturn]] void end_as(int signal);

}  // namespace rooflm::core
