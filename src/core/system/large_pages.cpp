// Huge pages.
#include "core/system/large_pages.h"

#include <sys/mman.h>

#include <memory>

namespace rooflm::core {

void prefer_large_pages(void* data, std::size_t bytes) {
  constexpr std::size_t kPage = std::size_t{2} << 20U;
  constexpr std::size_t kLeast = 4 * kPage;
  if (bytes < kLeast || std::align(kPage, kPage, data, bytes) == nullptr) return;
  // A hint: if it fails, small pages are used.
  static_cast<void>(::madvise(data, bytes / kPage * kPage, MADV_HUGEPAGE));
}

}  // namespace rooflm::core
