// Fuzz target: run records. Each input is opened, and one of a view, the page's document and the laws is made
// of it.
#include <sqlite3.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <span>
#include <string_view>

#include "record/reader.h"
#include "report/document.h"
#include "report/verify.h"
#include "report/view_format.h"
#include "report/views.h"
#include "tests/fuzz/scratch.h"

// The C library's own functions, which the sanitizer does not replace.
extern "C" void* __libc_malloc(std::size_t);
extern "C" void* __libc_realloc(void*, std::size_t);
extern "C" void __libc_free(void*);

namespace {

/// In front of every block of SQLite's: its size. 16 bytes keep what follows aligned.
union BlockSize {
  int bytes;
  alignas(16) char room[16];
};

void* allocate(int bytes) {
  auto* block = static_cast<BlockSize*>(__libc_malloc(sizeof(BlockSize) + static_cast<std::size_t>(bytes)));
  if (block == nullptr) return nullptr;
  block->bytes = bytes;
  return block + 1;
}

void release(void* memory) { __libc_free(static_cast<BlockSize*>(memory) - 1); }

void* reallocate(void* memory, int bytes) {
  auto* block = static_cast<BlockSize*>(__libc_realloc(static_cast<BlockSize*>(memory) - 1,
                                                       sizeof(BlockSize) + static_cast<std::size_t>(bytes)));
  if (block == nullptr) return nullptr;
  block->bytes = bytes;
  return block + 1;
}

int size_of(void* memory) { return memory == nullptr ? 0 : (static_cast<BlockSize*>(memory) - 1)->bytes; }

}  // namespace

/// SQLite comes from the system without a sanitizer. The sanitizer's allocator would find little in it, and
/// is half of the time of an input.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  static const sqlite3_mem_methods kMethods{allocate,
                                            release,
                                            reallocate,
                                            size_of,
                                            [](int bytes) { return (bytes + 7) / 8 * 8; },
                                            [](void*) { return SQLITE_OK; },
                                            [](void*) {},
                                            nullptr};
  if (sqlite3_config(SQLITE_CONFIG_MALLOC, &kMethods) != SQLITE_OK) std::abort();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  const std::string_view text = fuzz::text_of(data, size);
  const auto path = fuzz::scratch_file("a.rooflm", text);
  return fuzz::attempt([&] {
    // All of them for every input would be a twentieth of the inputs. A checksum chooses evenly, and the same
    // each time.
    const std::size_t chosen = std::hash<std::string_view>{}(text);
    const std::span<const report::ViewInfo> views = report::all_views();
    constexpr std::array kFormats{report::Format::table, report::Format::md, report::Format::csv,
                                  report::Format::json};
    const std::size_t part = chosen % (views.size() + 2);
    if (part == views.size() + 1) {
      static_cast<void>(report::verify(record::Reader(path)));
      return;
    }
    const report::RecordSet set = report::load(std::array{path});
    if (part == views.size()) {
      static_cast<void>(report::make_document(set, nullptr));
      return;
    }
    const std::array view{report::make_view(views[part].name, set)};
    static_cast<void>(report::format_views(view, kFormats[chosen / 64 % kFormats.size()], report::data_link));
  });
}
