// Running somebody else's program as if nobody stood between it and the user.
#include "core/child_process.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "core/error.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX has no header for it

namespace rooflm::core {
namespace {

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
/// What this process ignores or takes, and a program of its own would not.
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

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::vector<std::pair<std::string, std::string>>& environment) {
  // From now on signals wait until `wait` asks for them: none is lost.
  sigset_t waited = set_of(kPassedOn);
  sigaddset(&waited, SIGCHLD);
  sigset_t before;
  sigprocmask(SIG_BLOCK, &waited, &before);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const sigset_t taken = set_of(kTaken);
  posix_spawnattr_setsigdefault(&attributes, &taken);
  posix_spawnattr_setsigmask(&attributes, &before);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::vector<std::string> words = command;
  std::vector<std::string> variables = environment_with(environment);
  const int error = posix_spawnp(&number_, words.front().c_str(), nullptr, &attributes,
                                 pointers_to(words).data(), pointers_to(variables).data());
  posix_spawnattr_destroy(&attributes);
  if (error == 0) return;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  throw InputError(fmt::format("cannot start '{}': {}", command.front(), std::strerror(error)));
}

ChildEnd ChildProcess::wait() {
  sigset_t waited = set_of(kPassedOn);
  sigaddset(&waited, SIGCHLD);
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(number_, &status, WNOHANG);
    if (ended == number_ && WIFEXITED(status)) return {.code = WEXITSTATUS(status)};
    if (ended == number_ && WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
    if (ended < 0 && errno != EINTR)
      throw InputError(fmt::format("lost the program: {}", std::strerror(errno)));
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&waited, &info);
    // What the terminal sends comes from the kernel, and to the program as well.
    if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL) ::kill(number_, signal);
  }
}

void end_as(int signal) {
  const rlimit no_core{};
  ::setrlimit(RLIMIT_CORE, &no_core);  // the program left one, where that is wanted
  std::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  ::raise(signal);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  ::_exit(128 + signal);
}

}  // namespace rooflm::core
