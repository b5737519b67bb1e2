// Samples where the threads of this process are in their code.
#include "inject/stack_sampler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "inject/ranges.h"
#include "inject/session.h"
#include "inject/stack_notes.h"

namespace rooflm::inject {
namespace {

constexpr double kMostHertz = 1000;
constexpr double kSecondsPerNs = 1e-9;
/// Of the budget and of the rate, while samples are to cost less.
constexpr std::uint32_t kSlowPart = 4;

/// Held while the sampler's thread works. It takes locks that a fork would leave locked in the child for
/// ever, the loader's first of all, without which a child can neither load a library nor throw an exception.
std::mutex at_work;
thread_local bool holds_work = false;

}  // namespace

StackSampler::Wishes StackSampler::Wishes::from_text(const std::string& text) {
  Wishes wishes;
  char* end = nullptr;
  wishes.hertz = std::strtod(text.c_str(), &end);
  if (!(wishes.hertz > 0 && wishes.hertz <= kMostHertz)) return {};
  std::string_view rest(end);
  while (rest.starts_with(',')) {
    rest.remove_prefix(1);
    const std::string word(rest.substr(0, rest.find(',')));
    rest.remove_prefix(word.size());
    const double budget = std::strtod(word.c_str(), nullptr);
    if (word == "python") wishes.native = false;
    if (word == "running") wishes.waiting = false;
    if (budget > 0 && budget <= 1) wishes.budget = budget;
  }
  return wishes;
}

std::unique_ptr<StackSampler> StackSampler::start(StreamWriter& writer, Wishes wishes,
                                                  const std::atomic<bool>& is_on, std::string& why) {
  why = open_notes(wishes.native, is_on);
  int problem = 0;
  timer_t timer = why.empty() ? start_timer(thread_number(), 1 / wishes.hertz, nullptr, problem) : nullptr;
  if (problem != 0) why = std::string("timer_create: ") + std::strerror(problem);
  if (!why.empty()) {
    why = "stacks of threads that run were not sampled: " + why;
    return nullptr;
  }
  ::timer_delete(timer);
  return std::unique_ptr<StackSampler>(new StackSampler(writer, wishes, is_on));
}

StackSampler::StackSampler(StreamWriter& writer, Wishes wishes, const std::atomic<bool>& is_on)
    : writer_(writer),
      wishes_(wishes),
      nodes_(writer),
      timers_(wishes.hertz, wishes.budget),
      waiting_(wishes.hertz, wishes.budget, wishes.native,
               {.place_of = [this](const CapturedStack& stack) { return place_of(stack); },
                .take =
                    [this](const Wait& wait) {
                      writer_.add({.kind = RowKind::mark,
                                   .range = RangeKind::waiting,
                                   .name = wait.place,
                                   .start_ns = wait.first_ns,
                                   .end_ns = wait.last_ns,
                                   .place = wait.thread,
                                   .other = wait.periods});
                    }}),
      is_on_(is_on) {
  writer_.fact("stack rate", std::to_string(wishes.hertz));
  sigset_t signals;
  sigset_t before;
  sigfillset(&signals);
  pthread_sigmask(SIG_BLOCK, &signals, &before);
  thread_ = std::thread([this] {
    try {
      run();
    } catch (...) {  // no memory: there are no more samples, the program goes on
      close_notes();
    }
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StackSampler::~StackSampler() { stop(); }

void StackSampler::stop() {
  {
    const std::scoped_lock lock(mutex_);
    if (is_ending_) return;
    is_ending_ = true;
  }
  wake_.notify_all();
  naming_wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StackSampler::run() {
  leave_out(thread_number());
  signal_s_ = signal_cost_s();
  constexpr int kLooks = 10;  // ticks between looks at which threads there are
  constexpr int kNotes = 1000;
  const auto period = std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 / wishes_.hertz));
  auto next = std::chrono::steady_clock::now();
  bool is_ours = true;
  bool was_slow = false;
  for (int tick = 0;; ++tick) {
    std::unique_lock work(at_work);
    if (is_ours && !has_handler()) {  // at each tick: its own signals are for the program
      is_ours = false;
      timers_.drop();
      writer_.set_problem(
          "stacks of threads that run were sampled only until the program handled SIGURG by itself");
    }
    const bool is_slow = is_slow_.load(std::memory_order_relaxed);
    timers_.slow_down(is_slow ? kSlowPart : 1);
    const bool is_due = has_new_own_ || tick % kLooks == 0 || std::exchange(was_slow, is_slow) != is_slow;
    if (is_ours && is_due) look_at_threads();
    drain();
    if (is_ours && wishes_.waiting) look_at_waiting();
    if (tick % kNotes == kNotes - 1) note_cost();
    work.unlock();
    next = std::max(next + period, std::chrono::steady_clock::now());
    std::unique_lock lock(mutex_);
    if (wake_.wait_until(lock, next, [this] { return is_ending_; })) break;
  }
  const std::scoped_lock work(at_work);
  timers_.drop();
  close_notes();
  drain();
  waiting_.end();
  note_cost();
}

void StackSampler::before_fork() {
  block_notes();
  constexpr int kTries = 2000;  // whoever forks may hold what the sampler waits for
  constexpr std::chrono::microseconds kPause{100};
  holds_work = at_work.try_lock();
  for (int i = 0; i < kTries && !holds_work; ++i) {
    std::this_thread::sleep_for(kPause);
    holds_work = at_work.try_lock();
  }
}

void StackSampler::after_fork(bool is_child) {
  if (holds_work) at_work.unlock();
  holds_work = false;
  unblock_notes(is_child);
}

void StackSampler::look_at_threads() {
  std::set<std::uint32_t> own;
  {
    const std::scoped_lock lock(mutex_);
    own = own_threads_;
    has_new_own_ = false;
  }
  std::set<std::uint32_t> others;
  const auto wants = [&](std::uint32_t thread) {
    return !own.contains(thread) && others.insert(thread).second;
  };
  timers_.look(wants, signal_s_ + following_s_ / static_cast<double>(std::max<std::uint64_t>(1, samples_)));
  if (wishes_.waiting) waiting_.set_threads(others, own);
}

void StackSampler::look_at_waiting() {
  {
    const std::scoped_lock lock(mutex_);
    if (python_threads_) waiting_.set_python(layout_, *python_threads_);
    python_threads_.reset();
  }
  if (is_on_.load(std::memory_order_relaxed)) {
    waiting_.look(is_slow_.load(std::memory_order_relaxed) ? kSlowPart : 1);
  } else {
    waiting_.end();
  }
}

void StackSampler::drain() {
  const auto used_s = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + kSecondsPerNs * static_cast<double>(now.tv_nsec);
  };
  const std::uint64_t before = samples_;
  const double begun_s = used_s();
  const std::uint64_t lost = take_notes([this](const CapturedStack& stack) {
    ++samples_;
    taking_s_ += kSecondsPerNs * stack.cost_ns;
    write(stack);
  });
  if (samples_ > before) following_s_ += used_s() - begun_s;
  if (lost > 0) writer_.count_dropped(lost);
}

/// For whoever wants to know what sampling takes: all samples so far.
void StackSampler::note_cost() {
  if (samples_ == 0) return;
  constexpr double kUs = 1e6;
  const auto mean_us = [this](double seconds) {
    return std::to_string(kUs * seconds / static_cast<double>(samples_));
  };
  writer_.fact("stack cost",
               mean_us(taking_s_) + " " + std::to_string(kUs * signal_s_) + " " + mean_us(following_s_));
}

/// Of Python the outermost first, then of native code.
std::uint32_t StackSampler::place_of(const CapturedStack& stack) {
  const bool has_native = stack.registers.at(kReturnAddress) != 0;
  if (stack.python_count == 0 && !has_native) return 0;
  std::vector<std::uintptr_t> native =
      has_native ? unwinder_.addresses_of(stack) : std::vector<std::uintptr_t>();
  std::uint32_t node = 0;
  for (std::size_t i = stack.python_count; i-- > 0;) {
    const auto [code, instruction] = stack.python.at(i);
    const StackNodes::Node made = nodes_.of(node, code, instruction - code);
    if (made.is_new) note_place({code, instruction - code});
    node = made.number;
  }
  std::ranges::reverse(native);
  for (const std::uintptr_t address : native) node = nodes_.of(node, address).number;
  note_files(native);
  return node;
}

void StackSampler::write(const CapturedStack& stack) {
  const std::uint32_t node = place_of(stack);
  if (node == 0) return;
  writer_.add({.kind = RowKind::mark,
               .range = RangeKind::frames,
               .name = node,
               .start_ns = stack.time_ns,
               .end_ns = stack.time_ns,
               .place = stack.thread,
               .other = stack.periods});
}

void StackSampler::note_place(const std::array<std::uintptr_t, 2>& place) {
  const std::scoped_lock lock(mutex_);
  if (!places_.insert(place).second) return;
  unnamed_.push_back(place);
  naming_wake_.notify_all();
}

/// Which file each address is of, noted when one is seen that nobody has placed.
void StackSampler::note_files(const std::vector<std::uintptr_t>& addresses) {
  const auto is_known = [this](std::uintptr_t address) {
    const auto after =
        std::ranges::upper_bound(files_, address, {}, &std::pair<std::uintptr_t, std::uintptr_t>::first);
    return after != files_.begin() && address < std::prev(after)->second;
  };
  if (std::ranges::all_of(addresses, is_known)) return;
  std::ifstream maps("/proc/self/maps");
  std::string line;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> found;
  while (std::getline(maps, line)) {
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
    std::uintptr_t offset = 0;
    std::array<char, 5> rights{};
    int path = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %*s %*s %n", &first, &last, rights.data(), &offset,
                    &path) < 4)
      continue;
    if (rights[2] != 'x') continue;
    found.emplace_back(first, last);
    if (std::ranges::find(files_, found.back()) != files_.end()) continue;
    std::string key = "code at ";
    append_hex(key, first);
    std::string value;
    append_hex(value, last);
    value += ' ';
    append_hex(value, offset);
    writer_.fact(key, value + ' ' + (path > 0 ? line.substr(static_cast<std::size_t>(path)) : ""));
  }
  // What is no file's is known now, too: it is not looked for again.
  for (const std::uintptr_t address : addresses) {
    const bool is_found = std::ranges::any_of(
        found, [&](const auto& file) { return address >= file.first && address < file.second; });
    if (!is_found) found.emplace_back(address, address + 1);
  }
  std::ranges::sort(found);
  files_ = std::move(found);
}

bool StackSampler::set_python(const PythonLayout& layout) {
  constexpr auto kMost = static_cast<std::int64_t>(kFrameBytes - sizeof(std::uintptr_t));
  const bool is_known =
      layout.frame >= 0 &&
      std::ranges::all_of(std::array{layout.code, layout.previous, layout.instruction},
                          [](std::int64_t offset) { return offset >= 0 && offset <= kMost; });
  if (!is_known || !prepare_python()) {
    close_notes();
    return false;
  }
  unwinder_.set_interpreter(
      reinterpret_cast<std::uintptr_t>(::dlsym(RTLD_DEFAULT, "_PyEval_EvalFrameDefault")));
  note_python(layout);
  const std::scoped_lock lock(mutex_);
  layout_ = layout;
  return true;
}

void StackSampler::slow_down(bool slow) { is_slow_.store(slow, std::memory_order_relaxed); }

void StackSampler::set_python_threads(const PythonThreadList& list) {
  const std::scoped_lock lock(mutex_);
  python_threads_ = list;
}

void StackSampler::leave_out(std::uint32_t thread) {
  const std::scoped_lock lock(mutex_);
  has_new_own_ = own_threads_.insert(thread).second || has_new_own_;
}

bool StackSampler::wait_for_unnamed() {
  leave_out(thread_number());
  std::unique_lock lock(mutex_);
  constexpr std::chrono::milliseconds kLeast{500};
  constexpr std::chrono::milliseconds kEarly{
      50};  // at first all places are new, and some do not stay for long
  constexpr int kEarlyTimes = 10;
  const auto least = named_times_++ < kEarlyTimes ? kEarly : kLeast;
  if (naming_wake_.wait_for(lock, least, [this] { return is_ending_; })) return false;
  naming_wake_.wait(lock, [this] { return !unnamed_.empty() || is_ending_; });
  return !is_ending_;
}

bool StackSampler::next_unnamed(std::array<std::uintptr_t, 2>& place) {
  const std::scoped_lock lock(mutex_);
  if (unnamed_.empty()) return false;
  place = unnamed_.back();
  unnamed_.pop_back();
  return true;
}

}  // namespace rooflm::inject
