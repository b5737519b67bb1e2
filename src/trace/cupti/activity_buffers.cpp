// The buffers that CUPTI writes its records to.
#include "trace/cupti/activity_buffers.h"

#include <algorithm>
#include <utility>

namespace rooflm::trace {

ActivityBuffers::ActivityBuffers(std::size_t count, std::size_t bytes) : bytes_(bytes) {
  for (std::size_t i = 0; i < count; ++i) {
    memory_.push_back(std::make_unique<std::uint64_t[]>(bytes / sizeof(std::uint64_t)));  // NOLINT: as above
    free_.push_back(reinterpret_cast<std::uint8_t*>(memory_.back().get()));
  }
  filled_.reserve(count);
}

std::uint8_t* ActivityBuffers::request() {
  const std::scoped_lock lock(mutex_);
  if (free_.empty()) {
    ++refused_;
    return nullptr;
  }
  std::uint8_t* data = free_.back();
  free_.pop_back();
  return data;
}

void ActivityBuffers::complete(std::uint8_t* data, std::size_t valid) {
  const std::scoped_lock lock(mutex_);
  if (data != nullptr) filled_.push_back({data, valid});
}

std::vector<FilledBuffer> ActivityBuffers::take_filled() {
  const std::scoped_lock lock(mutex_);
  std::vector<FilledBuffer> taken;
  taken.reserve(memory_.size());
  std::swap(taken, filled_);
  return taken;
}

void ActivityBuffers::release(std::uint8_t* data) {
  std::fill_n(data, bytes_, std::uint8_t{0});
  const std::scoped_lock lock(mutex_);
  free_.push_back(data);
}

std::int64_t ActivityBuffers::refused() const {
  const std::scoped_lock lock(mutex_);
  return refused_;
}

}  // namespace rooflm::trace
