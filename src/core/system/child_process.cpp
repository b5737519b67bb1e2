// Runs another program transparently.
#include "core/system/child_process.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <string_view>

#include "core/error.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX has no header for it

namespace rooflm::core {
namespace {

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
/// Signals that this process ignores or handles; children get the default.
constexpr std::array kTaken = {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ};

template <std::size_t count>
sigset_t set_of(const std::array<int, count>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    bool is_replaced = false;
    for (const auto& [key, value] : added) is_replaced = is_replaced || key == name;
    if (!is_replaced) all.emplace_back(text);
  }
  for (const auto& [key, value] : added) all.push_back(fmt::format("{}={}", key, value));
  return all;
}

sigset_t waited_signals() {
  sigset_t waited = set_of(kPassedOn);
  sigaddset(&waited, SIGCHLD);
  return waited;
}

/// Blocks signals until they are taken, so none is lost. Returns the old mask.
sigset_t hold_signals() {
  const sigset_t waited = waited_signals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &waited, &before);
  return before;
}

/// Settings of a new process besides its arguments and environment.
struct Given {
  sigset_t mask;                 ///< blocked signals
  std::vector<int> inherited{};  ///< descriptors that it keeps
  bool has_group = false;        ///< its own process group, so only we send it signals
};

/// Returns the process id.
int spawn(const std::vector<std::string>& command,
          const std::vector<std::pair<std::string, std::string>>& environment, const Given& given) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const sigset_t taken = set_of(kTaken);
  posix_spawnattr_setsigdefault(&attributes, &taken);
  posix_spawnattr_setsigmask(&attributes, &given.mask);
  const int group = given.has_group ? POSIX_SPAWN_SETPGROUP : 0;  // group 0: its own id
  posix_spawnattr_setflags(&attributes,
                           static_cast<short>(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | group));
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  // dup2 onto the same number only clears close-on-exec.
  for (const int kept : given.inherited) posix_spawn_file_actions_adddup2(&files, kept, kept);
  std::vector<std::string> words = command;
  std::vector<std::string> variables = environment_with(environment);
  int number = 0;
  const int error = posix_spawnp(&number, words.front().c_str(), &files, &attributes,
                                 pointers_to(words).data(), pointers_to(variables).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) return number;
  sigprocmask(SIG_SETMASK, &given.mask, nullptr);
  const std::string why = fmt::format("cannot start '{}': {}", command.front(), std::strerror(error));
  if (error == EAGAIN || error == ENOMEM) throw OutOfMemory(why, 0);
  throw InputError(why);
}

/// How the process ended; nothing while it runs.
std::optional<ChildEnd> end_of(int number) {
  int status = 0;
  const pid_t ended = ::waitpid(number, &status, WNOHANG);
  if (ended == number && WIFEXITED(status)) return ChildEnd{.code = WEXITSTATUS(status)};
  if (ended == number && WIFSIGNALED(status)) return ChildEnd{.signal = WTERMSIG(status)};
  if (ended < 0 && errno != EINTR)
    throw InputError(fmt::format("lost the program: {}", std::strerror(errno)));
  return std::nullopt;
}

/// Whether to pass the signal on. Signals from the terminal come from the kernel, which sends them to the
/// children, too.
bool is_to_be_passed_on(int signal, const siginfo_t& info) {
  return signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::vector<std::pair<std::string, std::string>>& environment)
    : number_(spawn(command, environment, {.mask = hold_signals()})) {}

ChildEnd ChildProcess::wait() {
  const sigset_t waited = waited_signals();
  while (true) {
    if (const auto end = end_of(number_)) return *end;
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&waited, &info);
    if (is_to_be_passed_on(signal, info)) ::kill(number_, signal);
  }
}

ChildProcesses::ChildProcesses() : before_(hold_signals()) {}

ChildProcesses::~ChildProcesses() {
  send(SIGKILL);
  for (const Child& child : children_) {
    if (!child.has_ended) ::waitpid(child.number, nullptr, 0);
  }
}

std::size_t ChildProcesses::start(const std::vector<std::string>& command,
                                  const std::vector<std::pair<std::string, std::string>>& environment,
                                  const std::vector<int>& inherited) {
  // Its place first: a process that has started must not be lost for want of memory.
  Child& child = children_.emplace_back();
  child.number = spawn(command, environment, {.mask = before_, .inherited = inherited, .has_group = true});
  child.has_ended = false;
  return children_.size() - 1;
}

std::optional<ChildProcesses::Ended> ChildProcesses::wait(double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr double kNs = 1e9;
  const sigset_t waited = waited_signals();
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(std::min(seconds, 1e6)));
  while (true) {
    for (std::size_t i = 0; i < children_.size(); ++i) {
      if (children_[i].has_ended) continue;
      if (const auto end = end_of(children_[i].number)) {
        children_[i].has_ended = true;
        return Ended{.index = i, .end = *end};
      }
    }
    const double left = std::chrono::duration<double>(until - Clock::now()).count();
    if (left <= 0) return std::nullopt;
    const timespec pause{.tv_sec = static_cast<time_t>(left),
                         .tv_nsec = static_cast<long>((left - std::floor(left)) * kNs)};
    siginfo_t info{};
    const int signal = ::sigtimedwait(&waited, &info, &pause);
    if (signal > 0 && signal != SIGCHLD) send(signal);
  }
}

void ChildProcesses::send(int signal) const {
  for (const Child& child : children_) {
    if (!child.has_ended) ::kill(child.number, signal);
  }
}

std::size_t ChildProcesses::running() const {
  return static_cast<std::size_t>(std::ranges::count(children_, false, &Child::has_ended));
}

void end_as(int signal) {
  const rlimit no_core{};
  ::setrlimit(RLIMIT_CORE, &no_core);  // the child has left its own core dump if that is enabled
  std::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  ::raise(signal);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  ::_exit(128 + signal);
}

}  // namespace rooflm::core
