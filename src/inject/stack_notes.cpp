// What signal handlers note of stacks.
#include "inject/stack_notes.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "inject/session.h"

namespace rooflm::inject {
namespace {

constexpr int kSignal = SIGURG;

/// What handlers wrote and nobody has read yet. Never given back: a handler may still run.
struct Slot {
  enum State : int { kFree, kFilling, kFull };
  std::atomic<int> state{kFree};
  CapturedStack stack{};
};
constexpr std::size_t kSlots = 64;
/// Stacks for handlers. Code that works with its stack pointer in the heap (some of oneDNN's does) has other
/// data below, over which the system would write what it keeps for a handler; so a thread that has no such
/// stack of its own is given one at its first signal.
constexpr std::size_t kHandlerStacks = 128;
constexpr std::size_t kHandlerBytes = std::size_t{64} << 10U;
constexpr std::size_t kMostThreads = 256;
constexpr double kNsPerSecond = 1e9;
struct Notes {
  std::atomic<bool> wants_native{true}, wants_python{false}, is_open{false};
  std::atomic<const std::atomic<bool>*> is_on{nullptr};
  std::atomic<std::uint32_t> next{0};
  std::atomic<std::uint64_t> lost{0};
  PythonLayout layout{};
  std::array<Slot, kSlots> slots{};
  std::byte* handler_stacks = nullptr;
  std::array<std::atomic<std::uint32_t>, kHandlerStacks> owners{};  ///< threads; 0: free
  std::array<ThreadPace, kMostThreads> paces{};
};
/// A signal handler has nothing but statics. Made by the first sampler of the process.
std::atomic<Notes*> notes{nullptr};

thread_local sigset_t signals_before_fork;

Slot* claim_slot(Notes& all) {
  for (std::size_t tried = 0; tried < kSlots; ++tried) {
    Slot& slot = all.slots.at(all.next.fetch_add(1, std::memory_order_relaxed) % kSlots);
    int expected = Slot::kFree;
    if (slot.state.compare_exchange_strong(expected, Slot::kFilling, std::memory_order_acquire)) return &slot;
  }
  all.lost.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

/// The system takes the handler's stack from `context` when the handler returns.
void give_handler_stack(Notes& all, ucontext_t& context, std::uint32_t thread) {
  const bool has_one = (context.uc_stack.ss_flags & SS_DISABLE) == 0;
  for (std::size_t i = 0; !has_one && all.handler_stacks != nullptr && i < kHandlerStacks; ++i) {
    std::uint32_t nobody = 0;
    if (!all.owners[i].compare_exchange_strong(nobody, thread)) continue;  // NOLINT: i is within
    context.uc_stack = {
        .ss_sp = all.handler_stacks + i * kHandlerBytes, .ss_flags = 0, .ss_size = kHandlerBytes};
    return;
  }
}

/// The pace that a timer of ours carries; nullptr of any other signal.
ThreadPace* pace_of(Notes& all, const siginfo_t& info) {
  const auto place = reinterpret_cast<std::uintptr_t>(info.si_value.sival_ptr);
  const auto first = reinterpret_cast<std::uintptr_t>(all.paces.data());
  const bool is_ours = info.si_code == SI_TIMER && place >= first && place < first + sizeof(all.paces) &&
                       (place - first) % sizeof(ThreadPace) == 0;
  return is_ours ? static_cast<ThreadPace*>(info.si_value.sival_ptr) : nullptr;
}

/// Periods since the thread's last sample: those of its timer, and those that came while it could not be
/// interrupted.
std::uint32_t periods_since(const ThreadPace& pace, const siginfo_t& info) {
  constexpr int kMost = 1000;
  const auto missed = static_cast<std::uint32_t>(std::clamp(info.si_overrun, 0, kMost));
  return pace.periods.load(std::memory_order_relaxed) * (1 + missed);
}

void on_signal(int /*signal*/, siginfo_t* info, void* context) {
  Notes* all = notes.load(std::memory_order_acquire);
  ThreadPace* pace = all == nullptr ? nullptr : pace_of(*all, *info);
  if (pace == nullptr || !all->is_open.load(std::memory_order_acquire) ||
      !all->is_on.load()->load(std::memory_order_relaxed)) {
    return;
  }
  const int error = errno;
  const std::uint32_t periods = periods_since(*pace, *info);
  if (Slot* slot = claim_slot(*all)) {
    CapturedStack& stack = slot->stack;
    stack.time_ns = now_ns();
    stack.thread = static_cast<std::uint32_t>(::syscall(SYS_gettid));
    stack.periods = periods + pace->owed.exchange(0, std::memory_order_relaxed);
    stack.bytes_count = stack.python_count = 0;
    stack.python_place = 0;
    stack.registers[kReturnAddress] = 0;
    if (all->wants_python.load(std::memory_order_acquire)) capture_python(all->layout, stack);
    if (all->wants_native.load(std::memory_order_relaxed)) capture_native(context, stack);
    give_handler_stack(*all, *static_cast<ucontext_t*>(context), stack.thread);
    stack.cost_ns = pace->add_cost(now_ns() - stack.time_ns);
    slot->state.store(Slot::kFull, std::memory_order_release);
  } else {
    pace->owed.fetch_add(periods, std::memory_order_relaxed);
  }
  errno = error;
}

Notes* make_notes() {
  auto* made = new Notes;
  void* stacks = ::mmap(nullptr, kHandlerStacks * kHandlerBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks != MAP_FAILED) made->handler_stacks = static_cast<std::byte*>(stacks);
  return made;
}

}  // namespace

std::string open_notes(bool native, const std::atomic<bool>& is_on) {
  struct sigaction before {};
  ::sigaction(kSignal, nullptr, &before);
  const bool is_nobodys =
      (before.sa_flags & SA_SIGINFO) == 0 && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN);
  if (!has_handler() && !is_nobodys) return "the program handles SIGURG by itself";
  if (notes.load() == nullptr) notes.store(make_notes());
  Notes& all = *notes.load();
  all.wants_python = false;
  all.wants_native = native;
  all.is_on = &is_on;
  for (Slot& slot : all.slots) slot.state = Slot::kFree;
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (::sigaction(kSignal, &action, nullptr) != 0) return "SIGURG cannot be handled";
  all.is_open = true;
  return "";
}

void close_notes() {
  if (Notes* all = notes.load()) all->is_open = false;
}

bool has_handler() {
  struct sigaction now {};
  return ::sigaction(kSignal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
         now.sa_sigaction == on_signal;
}

void note_python(const PythonLayout& layout) {
  Notes& all = *notes.load();
  all.layout = layout;
  all.wants_python.store(true, std::memory_order_release);
}

/// As Linux numbers them.
clockid_t clock_of(std::uint32_t thread) {
  constexpr unsigned kOfThread = 4, kScheduled = 2;
  return static_cast<clockid_t>((~thread << 3U) | kOfThread | kScheduled);
}

timer_t start_timer(std::uint32_t thread, double period_s, ThreadPace* pace, int& problem) {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kSignal;
  event.sigev_value.sival_ptr = pace;
  event._sigev_un._tid = static_cast<pid_t>(thread);
  timer_t timer = nullptr;
  problem = 0;
  if (::timer_create(clock_of(thread), &event, &timer) != 0) {
    problem = errno;
    return nullptr;
  }
  set_timer(timer, period_s);
  return timer;
}

void set_timer(timer_t timer, double period_s) {
  const auto period = static_cast<long>(kNsPerSecond * period_s);
  const timespec pause{.tv_sec = period / 1'000'000'000, .tv_nsec = period % 1'000'000'000};
  const itimerspec times{.it_interval = pause, .it_value = pause};
  ::timer_settime(timer, 0, &times, nullptr);
}

ThreadPace* claim_pace() {
  for (ThreadPace& pace : notes.load()->paces) {
    if (pace.is_taken.exchange(true)) continue;
    pace.periods = 1;
    pace.cost_ns = pace.owed = 0;
    return &pace;
  }
  return nullptr;
}

double signal_cost_s() {
  constexpr int kTimes = 16;
  sigset_t signals;
  sigset_t before;
  sigemptyset(&signals);
  sigaddset(&signals, kSignal);
  pthread_sigmask(SIG_UNBLOCK, &signals, &before);
  const auto thread = static_cast<pid_t>(::syscall(SYS_gettid));
  std::uint64_t least_ns = ~std::uint64_t{0};
  for (int i = 0; i < kTimes && has_handler(); ++i) {
    const std::uint64_t begun_ns = now_ns();
    ::syscall(SYS_tgkill, ::getpid(), thread, kSignal);
    least_ns = std::min(least_ns, now_ns() - begun_ns);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return ~least_ns == 0 ? 0 : static_cast<double>(least_ns) / kNsPerSecond;
}

std::uint64_t take_notes(const std::function<void(const CapturedStack&)>& take) {
  Notes& all = *notes.load();
  for (Slot& slot : all.slots) {
    if (slot.state.load(std::memory_order_acquire) != Slot::kFull) continue;
    take(slot.stack);
    slot.state.store(Slot::kFree, std::memory_order_release);
  }
  return all.lost.exchange(0);
}

void free_handler_stacks(const std::set<std::uint32_t>& threads) {
  for (std::atomic<std::uint32_t>& owner : notes.load()->owners) {
    if (owner != 0 && !threads.contains(owner)) owner = 0;
  }
}

void block_notes() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, kSignal);
  pthread_sigmask(SIG_BLOCK, &signals, &signals_before_fork);
}

void unblock_notes(bool is_child) {
  if (is_child) close_notes();
  pthread_sigmask(SIG_SETMASK, &signals_before_fork, nullptr);
}

}  // namespace rooflm::inject
