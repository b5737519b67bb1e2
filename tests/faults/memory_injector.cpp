// Allocations that fail, of any program: a library for LD_PRELOAD, which test_memory_faults.py drives.
//
// FAULT_AT: the number of the malloc (from 1) that fails. FAULT_LASTS: those after it fail, too. FAULT_COUNT:
// a file for the number of calls, at the exit.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

extern "C" void* __libc_malloc(std::size_t bytes);  // NOLINT(bugprone-reserved-identifier): glibc's name

namespace {

std::atomic<long> g_calls{0};

/// Read when the first call comes, which is before any static of this library is made.
long first_to_fail() {
  const char* at = std::getenv("FAULT_AT");
  return at == nullptr ? 0 : std::atol(at);
}

[[gnu::destructor]] void write_count() {
  const long calls = g_calls;  // what follows takes memory, too
  const char* path = std::getenv("FAULT_COUNT");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (file == nullptr) return;
  std::fprintf(file, "%ld\n", calls);
  std::fclose(file);
}

}  // namespace

extern "C" void* malloc(std::size_t bytes) {
  static const long first = first_to_fail();
  static const bool lasts = std::getenv("FAULT_LASTS") != nullptr;
  const long call = ++g_calls;
  if (first > 0 && (call == first || (lasts && call > first))) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(bytes);
}
