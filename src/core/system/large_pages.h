// Huge pages for lists of many megabytes that are filled once from front to back.
#pragma once

#include <cstddef>
#include <vector>

namespace rooflm::core {

/// Asks the system to back [data, data + bytes) with pages of 2 MiB when it is touched: one page fault
/// instead of 512. Affects whole pages only, and only areas of at least 8 MiB, so small lists take no extra
/// memory. Does nothing if the system does not support it.
void prefer_large_pages(void* data, std::size_t bytes);

/// list.reserve(count), in huge pages.
template <class T>
void reserve_in_large_pages(std::vector<T>& list, std::size_t count) {
  if (count <= list.capacity()) return;
  list.reserve(count);
  prefer_large_pages(list.data(), list.capacity() * sizeof(T));
}

}  // namespace rooflm::core
