// Memory in large pages, for lists of many megabytes that are written once from front to back.
#pragma once

#include <cstddef>
#include <vector>

namespace rooflm::core {

/// Asks the system to back [data, data + bytes) with pages of 2 MiB once it is touched: one page fault
/// instead of 512. Only whole such pages count, and only from 8 MiB on, so that small lists take no more
/// memory than they use. Does nothing where the system does not offer it.
void prefer_large_pages(void* data, std::size_t bytes);

/// list.reserve(count), in large pages.
template <class T>
void reserve_in_large_pages(std::vector<T>& list, std::size_t count) {
  if (count <= list.capacity()) return;
  list.reserve(count);
  prefer_large_pages(list.data(), list.capacity() * sizeof(T));
}

}  // namespace rooflm::core
