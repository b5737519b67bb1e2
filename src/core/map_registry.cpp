// A list of maps that a signal handler can read.
//
// The handler does not jump back into the program (siglongjmp over C++ frames is undefined): it names the
// file and ends the process.
#include "core/map_registry.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace rooflm::core {
namespace {

struct Map {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  std::string path;
};

/// Held for a few instructions that touch no map, so a fault never happens inside.
class SpinLock {
 public:
  explicit SpinLock(std::atomic_flag& flag) : flag_(flag) {
    while (flag_.test_and_set(std::memory_order_acquire)) {
    }
  }
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;
  ~SpinLock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag& flag_;
};

// Static, because a C handler has no context argument. Never destroyed, because other statics may still hold
// maps at exit.
std::atomic_flag g_lock = ATOMIC_FLAG_INIT;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
std::vector<Map>& maps() {
  static auto* const list = new std::vector<Map>;  // NOLINT(cppcoreguidelines-owning-memory)
  return *list;
}

void say(const char* text, std::size_t size) {
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text, size);
}

extern "C" void explain_fault(int signal, siginfo_t* info, void* /*context*/) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  const SpinLock held(g_lock);
  for (const Map& map : maps()) {
    if (at < map.begin || at >= map.end) continue;
    constexpr char kBegin[] = "rooflm: ";
    constexpr char kEnd[] = ": it became shorter while it was being read\n";
    say(kBegin, sizeof kBegin - 1);
    say(map.path.data(), map.path.size());
    say(kEnd, sizeof kEnd - 1);
    ::_exit(static_cast<int>(ExitCode::bad_input));
  }
  std::signal(signal, SIG_DFL);  // the instruction is repeated and faults again
}

}  // namespace

void remember_map(std::span<const std::byte> bytes, const char* path) {
  Map map{.begin = bytes.data(), .end = bytes.data() + bytes.size(), .path = path};
  const SpinLock held(g_lock);
  maps().push_back(std::move(map));
}

void forget_map(const std::byte* data) {
  const SpinLock held(g_lock);
  auto& list = maps();
  for (Map& map : list) {
    if (map.begin != data) continue;
    std::swap(map, list.back());
    list.pop_back();
    return;
  }
}

void explain_truncated_maps() {
  maps();  // created here, not in the handler
  struct sigaction action {};
  action.sa_sigaction = explain_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace rooflm::core
