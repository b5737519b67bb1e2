// Runs another program transparently: signals and exit status pass through.
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
  int signal = 0;  ///< the signal that ended it; 0: none
};

/// Several concurrent child processes. Each has its own process group, so signals from the terminal or sent
/// to this process's group reach it once, through this class. At most one instance at a time.
class ChildProcesses {
 public:
  /// From now on signals are blocked until `wait` takes them.
  ChildProcesses();
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;
  /// Kills the children that still run (SIGKILL).
  ~ChildProcesses();

  /// As ChildProcess. `inherited`: descriptors that the child keeps. Returns its index, from 0.
  std::size_t start(const std::vector<std::string>& command,
                    const std::vector<std::pair<std::string, std::string>>& environment,
                    const std::vector<int>& inherited = {});
  struct Ended {
    std::size_t index = 0;
    ChildEnd end;
  };
  /// The next child that ends, or nothing within `seconds`. Meanwhile SIGINT, SIGTERM, SIGHUP, SIGQUIT,
  /// SIGUSR1 and SIGUSR2 sent to this process are passed on to all children.
  std::optional<Ended> wait(double seconds);
  void send(int signal) const;  ///< to all running children
  [[nodiscard]] std::size_t running() const;
  [[nodiscard]] int number(std::size_t index) const { return children_.at(index).number; }

 private:
  struct Child {
    int number = 0;
    bool has_ended = true;  ///< or has never started
  };
  std::vector<Child> children_;
  sigset_t before_;  ///< the signal mask before
};

/// Callback while the child runs, with its process id.
class ChildProcess {
 public:
  /// Starts `command` (searched on PATH) with these variables added to the environment; standard streams are
  /// inherited. Throws core::InputError if it cannot be started.
  ChildProcess(const std::vector<std::string>& command,
               const std::vector<std::pair<std::string, std::string>>& environment);
  /// Waits for it to end. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 sent to this process are
  /// passed on. Signals from the terminal reach both processes; handling them is up to the child.
  ChildEnd wait();
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_ = 0;
};

/// Ends this process by `signal`. Does not return.
[[noreturn]] void end_as(int signal);

}  // namespace rooflm::core
