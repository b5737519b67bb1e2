// Holds a stream back while work is submitted to it.
#include "backends/cuda/stream_hold.h"

#include <chrono>
#include <utility>

namespace rooflm::backends::cuda {

std::unique_ptr<StreamHold> StreamHold::begin(std::shared_ptr<Context> context) {
  if (!context->gate().close(context->stream())) return nullptr;
  return std::make_unique<StreamHold>(std::move(context));
}

StreamHold::StreamHold(std::shared_ptr<Context> context)
    : context_(std::move(context)), guard_([this] { give_way_in_time(); }) {}

StreamHold::~StreamHold() { StreamHold::release(); }

void StreamHold::give_way_in_time() {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, std::chrono::milliseconds(kMostMs), [&] { return is_released_; })) return;
  gave_way_ = true;
  context_->gate().open();
}

bool StreamHold::release() {
  if (!guard_.joinable()) return !gave_way_;
  context_->gate().open();
  {
    const std::scoped_lock lock(mutex_);
    is_released_ = true;
  }
  changed_.notify_one();
  guard_.join();
  return !gave_way_;
}

}  // namespace rooflm::backends::cuda
