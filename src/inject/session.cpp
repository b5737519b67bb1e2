// The recording of one process.
#include "inject/session.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace rooflm::inject {
namespace {

/// How often what was gathered is written: a process that is killed loses no more than a second.
constexpr std::chrono::milliseconds kTick{400};
/// In the first second: what dies young leaves something, too.
constexpr std::chrono::milliseconds kEarlyTick{50};
constexpr std::uint64_t kEarlyNs = 1'000'000'000;
/// Ranges that are steps by their name, in lower letters and without a number.
constexpr std::array<std::string_view, 5> kStepNames = {"step", "train_step", "training_step", "iteration",
                                                        "profilerstep"};

thread_local std::uint32_t known_thread = 0;

std::uint64_t number_of(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? fallback : std::strtoull(text, nullptr, 10);
}

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

std::string base_of(std::string_view name) {
  while (!name.empty() && (std::isdigit(static_cast<unsigned char>(name.back())) != 0 || name.back() == '#' ||
                           name.back() == ' ' || name.back() == '_')) {
    name.remove_suffix(1);
  }
  std::string base;
  for (const char c : name) base += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return base;
}

}  // namespace

std::atomic<Session*> Session::current_{nullptr};

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

std::uint32_t thread_number() {
  if (known_thread == 0) known_thread = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  return known_thread;
}

Wishes Wishes::from_environment() {
  Wishes wishes{.folder = text_of(kFolderVariable),
                .capture = text_of(kCaptureVariable),
                .keep = text_of(kKeepVariable)};
  if (const std::string calls = text_of(kCallsVariable); !calls.empty()) wishes.calls = calls;
  wishes.stacks = StackSampler::Wishes::from_text(text_of(kStacksVariable));
  wishes.skip = number_of(kSkipVariable, 0);
  wishes.steps = number_of(kStepsVariable, 0);
  wishes.duration_ms = number_of(kDurationVariable, 0);
  wishes.trace_every = number_of(kTraceEveryVariable, 1);
  wishes.most_bytes = number_of(kMostVariable, wishes.most_bytes);
  return wishes;
}

Session* Session::begin() {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  if (Session* session = current()) return session;
  Wishes wishes = Wishes::from_environment();
  if (wishes.folder.empty()) return nullptr;
  // The moment too: an executable that takes the place of another keeps the process's number.
  const std::string path =
      wishes.folder + "/" + std::to_string(::getpid()) + "-" + std::to_string(now_ns()) + ".stream";
  std::string why;
  auto writer = StreamWriter::create(path, wishes.most_bytes, why);
  if (writer == nullptr) return nullptr;
  auto* session = new Session(std::move(wishes), std::move(writer));  // until the process ends
  current_.store(session, std::memory_order_release);
  static bool has_handlers = false;
  if (!has_handlers) {
    has_handlers = true;
    // The child has none of the threads, and the file is not its own. It may begin one of its own.
    pthread_atfork(
        StackSampler::before_fork, [] { StackSampler::after_fork(false); },
        [] {
          StackSampler::after_fork(true);
          known_thread = 0;
          if (Session* parents = current_.exchange(nullptr)) parents->writer_->forget();
        });
    end_at_exit();
  }
  return session;
}

void Session::end_at_exit() {
  std::atexit([] {
    if (Session* own = current()) own->end();
  });
}

Session::Session(Wishes wishes, std::unique_ptr<StreamWriter> writer)
    : wishes_(std::move(wishes)),
      is_watching_(!wishes_.capture.empty() || wishes_.skip > 0 || wishes_.steps > 0),
      writer_(std::move(writer)),
      rhythm_(wishes_.trace_every) {
  if (!wishes_.capture.empty()) captured_ = writer_->text(wishes_.capture);
  note_process();
  const bool waits = !wishes_.capture.empty() || wishes_.skip > 0;
  if (!waits) switch_to(true);
  std::string why;
  if (wishes_.stacks.hertz > 0) {
    stacks_ = StackSampler::start(*writer_, wishes_.stacks, is_on_, why);
  }
  if (!why.empty()) writer_->fact("no stacks", why);
  // No signal of the program is for this thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  ticker_ = std::thread([this] { tick(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Session::note_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line{std::istreambuf_iterator<char>(file), {}};
  std::ranges::replace(line, '\0', ' ');
  while (!line.empty() && line.back() == ' ') line.pop_back();
  writer_->fact("command", line);
  // Processes that see the same have one steady clock.
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (boot >> id) writer_->fact("boot", id);
  std::string names = wishes_.keep + ",RANK,LOCAL_RANK,WORLD_SIZE,CUDA_VISIBLE_DEVICES,";
  for (std::size_t at = 0; at < names.size();) {
    const std::size_t end = names.find(',', at);
    const std::string name = names.substr(at, end - at);
    at = end + 1;
    const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
    if (value != nullptr) writer_->fact("environment " + name, value);
  }
  writer_->flush();
}

void Session::start_device() {
  const std::scoped_lock lock(mutex_);
  if (has_started_device_) return;
  has_started_device_ = true;
  writer_->set_has_device();
  std::string why;
  device_ = open_device_source(*writer_, wishes_.calls, why);
  if (device_ != nullptr && chosen_) device_->choose(*chosen_);
  if (device_ == nullptr || (is_on() && !device_->start(why))) writer_->set_problem(why);
  end_at_exit();
}

void Session::switch_to(bool on) {
  if (is_on() == on || (on && is_over_)) return;
  if (on && on_since_ns_ == 0) on_since_ns_ = now_ns();
  if (device_ != nullptr) {
    std::string why;
    if (!on) {
      device_->stop();
    } else if (!device_->start(why)) {
      writer_->set_problem(why);
    }
  }
  is_on_.store(on, std::memory_order_relaxed);
}

void Session::see_push(std::uint32_t number, std::string_view name) {
  if (captured_ != 0) {
    if (number != captured_) return;
    const std::scoped_lock lock(mutex_);
    if (depth_++ > 0) return;
    const std::uint64_t instance = seen_++;
    is_over_ = is_over_ || (wishes_.steps > 0 && instance >= wishes_.skip + wishes_.steps);
    if (instance >= wishes_.skip) switch_to(true);
    return;
  }
  const std::string base = base_of(name);
  if (std::ranges::find(kStepNames, base) == kStepNames.end()) return;
  const std::scoped_lock lock(mutex_);
  // The first one begins; as the next one begins it has ended.
  if (step_name_.empty()) {
    step_name_ = base;
  } else if (base == step_name_) {
    count_step();
  }
}

void Session::see_pop(std::uint32_t number) {
  if (captured_ == 0 || number != captured_) return;
  const std::scoped_lock lock(mutex_);
  if (depth_ > 0 && --depth_ == 0) switch_to(false);
}

bool Session::end_step() {
  if (captured_ != 0) return is_on();
  const std::scoped_lock lock(mutex_);
  if (is_watching_) {
    constexpr const char* kOwn = "\n";  // of the recorder's own marks: no range is called so
    if (step_name_.empty()) step_name_ = kOwn;
    if (step_name_ == kOwn) count_step();
    return is_on();
  }
  const bool is_wanted = rhythm_.end_step(now_ns());
  if (device_ != nullptr && !is_over_ && is_wanted != is_traced()) trace_step(is_wanted);
  return is_traced();
}

void Session::trace_step(bool wanted) {
  std::string why;
  if (!wanted) {
    device_->leave();
  } else if (!device_->start(why)) {
    return writer_->set_problem(why);
  }
  is_traced_.store(wanted, std::memory_order_relaxed);
  if (stacks_ != nullptr) stacks_->slow_down(!wanted);
}

void Session::count_step() {
  ++seen_;
  if (wishes_.steps > 0 && seen_ >= wishes_.skip + wishes_.steps) {
    switch_to(false);
    is_over_ = true;
    if (device_ != nullptr) device_->leave();
  } else if (seen_ >= wishes_.skip) {
    switch_to(true);
  }
}

void Session::choose(const std::string& activities) {
  const std::scoped_lock lock(mutex_);
  chosen_ = activities;
  if (device_ == nullptr || is_over_) return;
  switch_to(false);
  device_->choose(activities);
  switch_to(true);
}

void Session::tick() {
  if (stacks_ != nullptr) stacks_->leave_out(thread_number());
  std::unique_lock lock(wake_mutex_);
  const std::uint64_t begun_ns = now_ns();
  const auto pause = [&] { return now_ns() - begun_ns < kEarlyNs ? kEarlyTick : kTick; };
  while (!wake_.wait_for(lock, pause(), [this] { return is_ending_; })) {
    lock.unlock();
    DeviceSource* device = nullptr;
    {
      const std::scoped_lock switch_lock(mutex_);
      device = device_.get();
      const bool is_late = wishes_.duration_ms > 0 && on_since_ns_ > 0 &&
                           (now_ns() - on_since_ns_) / 1'000'000 >= wishes_.duration_ms;
      if ((is_late || writer_->is_full()) && is_on()) {
        switch_to(false);
        is_over_ = true;
      }
    }
    if (device != nullptr) device->collect(false);
    writer_->flush();
    lock.lock();
  }
}

void Session::end() {
  {
    const std::scoped_lock lock(wake_mutex_);
    if (is_ending_) return;
    is_ending_ = true;
  }
  wake_.notify_all();
  if (ticker_.joinable()) ticker_.join();
  if (stacks_ != nullptr) stacks_->stop();
  const std::scoped_lock lock(mutex_);
  switch_to(false);
  is_over_ = true;
  if (device_ != nullptr) device_->collect(true);
  writer_->end();
}

}  // namespace rooflm::inject
