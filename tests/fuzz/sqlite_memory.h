// Memory for SQLite without the sanitizer's allocator.
#pragma once

#include <sqlite3.h>

#include <cstddef>
#include <cstdlib>

// The C library's own functions, which the sanitizer does not replace.
extern "C" void* __libc_malloc(std::size_t);
extern "C" void* __libc_realloc(void*, std::size_t);
extern "C" void __libc_free(void*);

namespace rooflm::fuzz {

/// In front of every block of SQLite's: its size. 16 bytes keep what follows aligned.
union BlockSize {
  int bytes;
  alignas(16) char room[16];
};

inline void* allocate(int bytes) {
  auto* block = static_cast<BlockSize*>(__libc_malloc(sizeof(BlockSize) + static_cast<std::size_t>(bytes)));
  if (block == nullptr) return nullptr;
  block->bytes = bytes;
  return block + 1;
}

inline void release(void* memory) { __libc_free(static_cast<BlockSize*>(memory) - 1); }

inline void* reallocate(void* memory, int bytes) {
  auto* block = static_cast<BlockSize*>(__libc_realloc(static_cast<BlockSize*>(memory) - 1,
                                                       sizeof(BlockSize) + static_cast<std::size_t>(bytes)));
  if (block == nullptr) return nullptr;
  block->bytes = bytes;
  return block + 1;
}

inline int size_of(void* memory) {
  return memory == nullptr ? 0 : (static_cast<BlockSize*>(memory) - 1)->bytes;
}

/// To be called before SQLite is used. It comes from the system without a sanitizer: the sanitizer's
/// allocator would find little in it, and is half of the time of an input.
inline void give_sqlite_plain_memory() {
  static const sqlite3_mem_methods kMethods{allocate,
                                            release,
                                            reallocate,
                                            size_of,
                                            [](int bytes) { return (bytes + 7) / 8 * 8; },
                                            [](void*) { return SQLITE_OK; },
                                            [](void*) {},
                                            nullptr};
  if (sqlite3_config(SQLITE_CONFIG_MALLOC, &kMethods) != SQLITE_OK) std::abort();
}

}  // namespace rooflm::fuzz
