// Where threads wait, seen from another thread.
#include "inject/waiting_threads.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "inject/session.h"
#include "inject/stack_notes.h"
#include "inject/thread_timers.h"

namespace rooflm::inject {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
/// A thread that has waited for long is looked at more seldom: after a sixteenth of that time.
constexpr std::uint64_t kShareOfStay = 16;
constexpr std::uint64_t kLongestPause = 31;
constexpr std::uint32_t kMostPeriods = 1U << 16U;  // of one row

/// Processor time that a thread has taken; nothing of one that is gone.
std::optional<std::uint64_t> used_ns_of(std::uint32_t thread) {
  timespec now{};
  if (::clock_gettime(clock_of(thread), &now) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<std::uint64_t>(now.tv_nsec);
}

double own_s() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Stack pointer and program counter of a thread that waits: the last two words of "35 0x1 .. 0x7ffd 0x7f00",
/// or of "-1 0x7ffd 0x7f00" outside of calls. Nothing of "running".
bool read_place(std::uint32_t thread, Registers& registers) {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/task/%u/syscall", thread);
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::array<char, 256> bytes{};
  const ssize_t length = ::read(file, bytes.data(), bytes.size() - 1);
  ::close(file);
  std::string_view text(bytes.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  while (text.ends_with('\n')) text.remove_suffix(1);
  for (const std::size_t which : {kReturnAddress, kStackPointer}) {
    const std::size_t blank = text.rfind(' ');
    if (blank == std::string_view::npos) return false;
    registers.at(which) =
        std::strtoull(text.data() + blank + 1, nullptr, 16);  // NOLINT: it ends at a blank or 0
    text.remove_suffix(text.size() - blank);
  }
  return registers.at(kReturnAddress) != 0 && registers.at(kStackPointer) != 0;
}

}  // namespace

WaitingThreads::WaitingThreads(double hertz, double budget, bool native, Takers takers)
    : period_s_(1 / hertz),
      budget_(budget),
      native_(native),
      takers_(std::move(takers)),
      stack_(std::make_unique<CapturedStack>()) {}

void WaitingThreads::set_python(const PythonLayout& layout, const PythonThreadList& list) {
  layout_ = layout;
  python_.set(list);
  has_python_ = true;
  for (auto& [number, thread] : threads_) {  // what they wait in is looked at anew
    finish(thread);
    thread = {};
  }
}

void WaitingThreads::set_threads(const std::set<std::uint32_t>& threads, const std::set<std::uint32_t>& own) {
  for (auto entry = threads_.begin(); entry != threads_.end();) {
    const bool is_there = threads.contains(entry->first);
    if (!is_there && !own.contains(entry->first)) finish(entry->second);
    entry = is_there ? std::next(entry) : threads_.erase(entry);
  }
  for (const std::uint32_t thread : threads) threads_.try_emplace(thread);
}

void WaitingThreads::look(std::uint32_t apart) {
  ++tick_;
  if (tick_ - looked_ < std::max(periods_, apart)) return;
  looked_ = tick_;
  const double begun_s = own_s();
  has_looked_at_python_ = false;
  for (auto& [number, thread] : threads_) {
    if (tick_ >= thread.next) look_at(number, thread);
  }
  constexpr double kWeight = 1.0 / 16;
  cost_s_ += kWeight * (own_s() - begun_s - cost_s_);
  periods_ = periods_between(cost_s_, period_s_, budget_, periods_);
}

void WaitingThreads::look_at(std::uint32_t number, Thread& thread) {
  const std::uint64_t now = now_ns();
  const std::optional<std::uint64_t> used_ns = used_ns_of(number);
  if (!used_ns) return finish(thread);
  const std::uint64_t since_ns = std::exchange(thread.looked_ns, now);
  const std::uint32_t passed = since_ns == 0 ? 1 : std::max(1U, periods_in(now - since_ns));
  const bool has_run = std::exchange(thread.used_ns, *used_ns) != *used_ns;
  if (!has_run && thread.wait.thread != 0) return extend(thread, now);
  // It went on somewhere within what was left out: in the middle, on average.
  if (thread.wait.thread != 0) thread.wait.periods += (passed - 1) / 2;
  finish(thread);
  // One that runs shows it by its clock, which costs less than to ask what it does.
  if (used_ns_of(number) != used_ns || !capture(number, *used_ns)) return;
  const std::uint32_t place = takers_.place_of(*stack_);
  if (place == 0) return;
  constexpr std::uint32_t kMostAtOnce = 64;  // it may have been left out for long
  thread.since = tick_;
  thread.before = std::min((passed + 1) / 2, kMostAtOnce);
  thread.wait = {.thread = number, .place = place, .first_ns = now, .last_ns = now, .periods = thread.before};
}

/// Ticks may come late.
std::uint32_t WaitingThreads::periods_in(std::uint64_t ns) const {
  return static_cast<std::uint32_t>(std::llround(1e-9 * static_cast<double>(ns) / period_s_));
}

void WaitingThreads::extend(Thread& thread, std::uint64_t now_ns) {
  thread.wait.last_ns = now_ns;
  thread.wait.periods = thread.before + periods_in(now_ns - thread.wait.first_ns);
  thread.next = tick_ + std::clamp<std::uint64_t>((tick_ - thread.since) / kShareOfStay, 1, kLongestPause);
  if (thread.wait.periods < thread.written) return;
  // A program that is killed loses no more than half of a wait.
  const Wait handed = thread.wait;
  const std::uint64_t since = thread.since;
  const std::uint64_t next = thread.next;
  const std::uint32_t written = std::min(2 * thread.written, kMostPeriods);
  finish(thread);
  thread.since = since;
  thread.next = next;
  thread.written = written;
  thread.before = 0;
  thread.wait = {
      .thread = handed.thread, .place = handed.place, .first_ns = now_ns, .last_ns = now_ns, .periods = 0};
}

void WaitingThreads::finish(Thread& thread) {
  if (thread.wait.thread != 0 && thread.wait.periods > 0) takers_.take(thread.wait);
  thread.wait = {};
  thread.written = kAtFirst;
  thread.next = 0;
}

void WaitingThreads::end() {
  for (auto& [number, thread] : threads_) finish(thread);
}

bool WaitingThreads::capture(std::uint32_t thread, std::uint64_t used_ns) {
  CapturedStack& stack = *stack_;
  stack.time_ns = now_ns();
  stack.thread = thread;
  stack.is_waiting = true;
  stack.bytes_count = stack.python_count = 0;
  stack.python_place = 0;
  stack.registers = {};
  if (!read_place(thread, stack.registers)) return false;
  if (has_python_) {
    std::uintptr_t state = python_.state_of(thread);
    if (state == 0 && !std::exchange(has_looked_at_python_, true)) {
      python_.look();
      state = python_.state_of(thread);
    }
    capture_python_of(state, layout_, stack);
  }
  if (native_) {
    copy_stack(stack);
  } else {
    stack.registers.at(kReturnAddress) = 0;
  }
  return used_ns_of(thread) == used_ns;
}

}  // namespace rooflm::inject
