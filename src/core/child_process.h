// Running somebody else's program as if nobody stood between it and the user.
#pragma once

#include <csignal>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rooflm::core {

struct ChildEnd {
  int code = 0;    ///< its exit code
  int signal = 0;  ///< that ended it; 0: none did
};

/// Several programs that run at once. Each has a process group of its own, so that what the terminal or
/// somebody sends to the group of this process reaches them once, through it. One of these at a time.
class ChildProcesses {
 public:
  /// Signals wait from now on until `wait` asks for them.
  ChildProcesses();
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;
  /// Ends with SIGKILL those that still run.
  ~ChildProcesses();

  /// As ChildProcess; `inherited`: a descriptor that the program keeps, or -1. Returns its place, from 0.
  std::size_t start(const std::vector<std::string>& command,
                    const std::vector<std::pair<std::string, std::string>>& environment, int inherited = -1);
  struct Ended {
    std::size_t index = 0;
    ChildEnd end;
  };
  /// The next that ends, or nothing within so many seconds. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and
  /// SIGUSR2 that this process gets meanwhile are passed on to all.
  std::optional<Ended> wait(double seconds);
  void send(int signal) const;  ///< to all that run
  [[nodiscard]] std::size_t running() const;
  [[nodiscard]] int number(std::size_t index) const { return numbers_.at(index); }

 private:
  std::vector<int> numbers_;
  std::vector<bool> has_ended_;
  sigset_t before_;  ///< blocked signals
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
