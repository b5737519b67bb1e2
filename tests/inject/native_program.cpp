// A native program for tests of the recorder: it loads the injection library as the driver would, and takes
// processor time in functions with known names. native_program MODE: what it does besides.
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace {

std::atomic<int> ticks{0};

using Call = int (*)();
using Step = void (*)();

void* library() {
  static void* const handle = dlopen(std::getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
  return handle;
}

template <class Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(library(), name));
}

double used_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

extern "C" __attribute__((noinline)) double inner_work(double s) {
  volatile double sum = 1;
  for (const double end = used_s() + s; used_s() < end;) {
    for (int i = 0; i < 1000; ++i) sum = sum * 1.0000001 + 0.5;
  }
  return sum;
}
extern "C" __attribute__((noinline)) double outer_work(double s) { return inner_work(s) + 1; }
extern "C" __attribute__((noinline)) double child_work(double s) { return inner_work(s) + 2; }
extern "C" __attribute__((noinline)) double range_work(double s) { return inner_work(s) + 3; }

/// Functions that wait, each in its own way, and how many of their calls ended early.
constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 300'000'000};
std::mutex held;
std::array<int, 2> ends{};

/// A function that returns what it calls is left before it calls.
int after_call(int result) {
  __asm__ volatile("" : "+r"(result));
  return result;
}

extern "C" __attribute__((noinline)) int wait_sleep() { return after_call(nanosleep(&kPause, nullptr)); }
extern "C" __attribute__((noinline)) int wait_poll() { return after_call(poll(nullptr, 0, 300)); }
extern "C" __attribute__((noinline)) int wait_lock() {
  const std::scoped_lock lock(held);
  return 0;
}
extern "C" __attribute__((noinline)) int wait_read() {
  char byte = 0;
  return read(ends[0], &byte, 1) == 1 ? 0 : 1;
}
/// Finds its frame by a pointer, since nobody knows how much room it takes, and calls the system by itself.
extern "C" __attribute__((noinline)) int wait_by_pointer(int bytes) {
  volatile char* room = static_cast<char*>(__builtin_alloca(static_cast<std::size_t>(bytes)));
  room[0] = 0;
  long result = SYS_nanosleep;
  __asm__ volatile("syscall" : "+a"(result) : "D"(&kPause), "S"(nullptr) : "rcx", "r11", "memory");
  return (result == 0 ? 0 : 1) + room[0];
}

int waits_everywhere() {
  if (pipe(ends.data()) != 0) return 1;
  std::atomic<int> count{0};
  held.lock();
  std::thread locks([&] { count += wait_lock(); });
  std::thread reads([&] { count += wait_read(); });
  count += wait_sleep() + wait_poll() + wait_by_pointer(1000);
  held.unlock();
  count += write(ends[1], "x", 1) == 1 ? 0 : 1;
  locks.join();
  reads.join();
  return count;
}

/// Calls that wait, each of which a signal would end early. How many it did.
int interrupted_calls() {
  int count = 0;
  for (int i = 0; i < 3; ++i) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 15'000'000};
    count += nanosleep(&pause, nullptr) == 0 ? 0 : 1;
    count += poll(nullptr, 0, 15) == 0 ? 0 : 1;
  }
  return count;
}

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "plain";
  if (mode == "own-urg") signal(SIGURG, [](int) { ++ticks; });
  if (mode == "own-prof") {
    signal(SIGPROF, [](int) { ++ticks; });
    const itimerval times{.it_interval = {.tv_sec = 0, .tv_usec = 5000},
                          .it_value = {.tv_sec = 0, .tv_usec = 5000}};
    setitimer(ITIMER_PROF, &times, nullptr);
  }
  find<Call>("rooflm_begin")();
  find<Step>("rooflm_begin_step")();
  outer_work(0.15);
  find<Call>("rooflm_end_step")();
  if (mode == "steps") {
    range_work(0.15);
    find<Call>("rooflm_end_step")();
    child_work(0.15);
  } else if (mode == "threads") {
    std::thread other([] { child_work(0.1); });
    std::printf("%d interrupted\n", interrupted_calls());
    other.join();
  } else if (mode == "waits") {
    std::printf("%d interrupted\n", waits_everywhere());
    find<Call>("rooflm_end_step")();
  } else if (mode == "fork") {
    if (const pid_t child = fork(); child == 0) {
      find<Call>("rooflm_begin")();
      child_work(0.15);
      return 0;
    } else {
      waitpid(child, nullptr, 0);
    }
  } else if (mode == "exec") {
    for (int i = 0; i < 20; ++i) {  // signals are on their way all the time
      if (fork() == 0) {
        find<Call>("rooflm_begin")();
        inner_work(0.003);
        execl("/bin/true", "true", nullptr);
      }
      int status = 0;
      wait(&status);
      if (status != 0) return 9;
    }
    execl(arguments[0], arguments[0], "plain", nullptr);
  } else if (mode == "crash") {
    usleep(600'000);
    abort();
  }
  std::printf("%d ticks\n", ticks.load());
}
