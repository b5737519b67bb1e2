// The buffers that CUPTI writes its records to. For files of this folder and their tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace rooflm::trace {

struct FilledBuffer {
  std::uint8_t* data = nullptr;
  std::size_t bytes = 0;
};

/// A fixed number of buffers, allocated and touched before tracing starts: a page fault during a launch would
/// cost a millisecond or more. CUPTI requests buffers from any thread.
class ActivityBuffers {
 public:
  ActivityBuffers(std::size_t count, std::size_t bytes);
  /// A free buffer. nullptr, and counted, if there is none: its records are lost.
  [[nodiscard]] std::uint8_t* request();
  /// `data` was filled with `valid` bytes of records.
  void complete(std::uint8_t* data, std::size_t valid);
  /// The buffers filled since the last call. Give each back with `release`.
  [[nodiscard]] std::vector<FilledBuffer> take_filled();
  /// Zeroes the buffer and makes it free again.
  void release(std::uint8_t* data);
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::int64_t refused() const;

 private:
  mutable std::mutex mutex_;
  std::size_t bytes_;
  std::vector<std::unique_ptr<std::uint64_t[]>> memory_;  // NOLINT(modernize-avoid-c-arrays): 8-byte aligned
  std::vector<std::uint8_t*> free_;
  std::vector<FilledBuffer> filled_;
  std::int64_t refused_ = 0;
};

}  // namespace rooflm::trace
