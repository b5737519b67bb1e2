// Faults at chosen system calls of any program: a library for LD_PRELOAD, which test_faults.py drives.
//
// FAULT_PATH: only calls on files below this path count. FAULT_CALLS: their names, separated by commas.
// FAULT_AT: the number of the call (from 1) at which FAULT_DO happens: "kill" before the call, "ERRNO" (a
// number) once, "ERRNO+" from then on, "half" (reads and writes move half of the bytes from then on), "eintr"
// (every other call is interrupted from then on), "stop" (the process stops before the call, as one that
// hangs), "slowMS" (each call takes that many milliseconds longer from then on). FAULT_COUNT: a file for the
// number of calls, at the exit.
#undef _FORTIFY_SOURCE  // what is defined below must not be inlined from headers
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Plan {
  std::string path = variable("FAULT_PATH");
  std::string calls = std::string(1, ',').append(variable("FAULT_CALLS")).append(1, ',');
  std::string act = variable("FAULT_DO");
  std::string count_file = variable("FAULT_COUNT");
  long at = std::atol(variable("FAULT_AT").c_str());
  std::atomic<long> count{0};
};

Plan& plan() {
  static auto* const made = new Plan;
  return *made;
}

enum class Verdict { go, fail, half };

/// Decides about a call, and kills the process when that is the plan.
Verdict meet(const char* call, const std::string& path) {
  Plan& p = plan();
  if (p.path.empty() || path.compare(0, p.path.size(), p.path) != 0) return Verdict::go;
  if (p.calls.find(std::string(",") + call + ",") == std::string::npos) return Verdict::go;
  const long number = ++p.count;
  if (p.at <= 0 || number < p.at) return Verdict::go;
  if (p.act == "half") return Verdict::half;
  if (p.act == "eintr") {
    errno = EINTR;
    return (number - p.at) % 2 == 0 ? Verdict::fail : Verdict::go;
  }
  if (p.act.rfind("slow", 0) == 0) {
    ::usleep(1000 * static_cast<useconds_t>(std::atoi(p.act.c_str() + 4)));
    return Verdict::go;
  }
  const bool is_lasting = !p.act.empty() && p.act.back() == '+';
  if (number > p.at && !is_lasting) return Verdict::go;
  if (p.act == "kill") ::kill(::getpid(), SIGKILL);
  if (p.act == "stop") {
    ::kill(::getpid(), SIGSTOP);
    return Verdict::go;
  }
  errno = std::atoi(p.act.c_str());
  return Verdict::fail;
}

std::string path_of(int fd) {
  char link[32];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(link, path, sizeof path);
  return n < 0 ? "" : std::string(path, static_cast<std::size_t>(n));
}

std::string absolute(const char* path) {
  if (path[0] == '/') return path;
  char folder[4096];
  return ::getcwd(folder, sizeof folder) == nullptr ? path : std::string(folder) + "/" + path;
}

std::size_t part(std::size_t bytes, Verdict verdict) {
  return verdict == Verdict::half ? std::max<std::size_t>(1, bytes / 2) : bytes;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

[[gnu::destructor]] void write_count() {
  if (plan().count_file.empty()) return;
  std::FILE* file = std::fopen(plan().count_file.c_str(), "w");
  if (file == nullptr) return;
  std::fprintf(file, "%ld\n", plan().count.load());
  std::fclose(file);
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t bytes) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  const Verdict verdict = meet("write", path_of(fd));
  return verdict == Verdict::fail ? -1 : real(fd, data, part(bytes, verdict));
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t at) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  const Verdict verdict = meet("write", path_of(fd));
  return verdict == Verdict::fail ? -1 : real(fd, data, part(bytes, verdict), at);
}

ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t at) { return pwrite(fd, data, bytes, at); }

ssize_t read(int fd, void* data, size_t bytes) {
  static const auto real = next<ssize_t (*)(int, void*, size_t)>("read");
  const Verdict verdict = meet("read", path_of(fd));
  return verdict == Verdict::fail ? -1 : real(fd, data, part(bytes, verdict));
}

ssize_t pread(int fd, void* data, size_t bytes, off_t at) {
  static const auto real = next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  const Verdict verdict = meet("read", path_of(fd));
  return verdict == Verdict::fail ? -1 : real(fd, data, part(bytes, verdict), at);
}

ssize_t pread64(int fd, void* data, size_t bytes, off64_t at) { return pread(fd, data, bytes, at); }

int fsync(int fd) {
  static const auto real = next<int (*)(int)>("fsync");
  return meet("fsync", path_of(fd)) == Verdict::fail ? -1 : real(fd);
}

int fdatasync(int fd) {
  static const auto real = next<int (*)(int)>("fdatasync");
  return meet("fsync", path_of(fd)) == Verdict::fail ? -1 : real(fd);
}

int ftruncate(int fd, off_t bytes) noexcept {
  static const auto real = next<int (*)(int, off_t)>("ftruncate");
  return meet("truncate", path_of(fd)) == Verdict::fail ? -1 : real(fd, bytes);
}

int ftruncate64(int fd, off64_t bytes) noexcept { return ftruncate(fd, bytes); }

int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  return meet("rename", absolute(to)) == Verdict::fail ? -1 : real(from, to);
}

int unlink(const char* path) noexcept {
  static const auto real = next<int (*)(const char*)>("unlink");
  return meet("unlink", absolute(path)) == Verdict::fail ? -1 : real(path);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = next<int (*)(const char*, mode_t)>("mkdir");
  return meet("mkdir", absolute(path)) == Verdict::fail ? -1 : real(path, mode);
}

int symlink(const char* target, const char* path) noexcept {
  static const auto real = next<int (*)(const char*, const char*)>("symlink");
  return meet("symlink", absolute(path)) == Verdict::fail ? -1 : real(target, path);
}

}  // extern "C"
