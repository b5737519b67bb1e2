// Holding a stream back while work is submitted to it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "backends/backend.h"
#include "backends/cuda/context.h"

namespace rooflm::backends::cuda {

/// The stream waits for a number in the host's memory, which costs the device nothing afterwards. A thread of
/// its own releases it after kMostMs: the queue of a stream that waits may be full, and then who submits
/// waits for the stream.
class StreamHold final : public Hold {
 public:
  /// nullptr where the driver has no such wait.
  static std::unique_ptr<StreamHold> begin(std::shared_ptr<Context> context);
  explicit StreamHold(std::shared_ptr<Context> context);
  StreamHold(const StreamHold&) = delete;
  StreamHold& operator=(const StreamHold&) = delete;
  ~StreamHold() override;
  bool release() override;

 private:
  static constexpr int kMostMs = 200;
  void give_way_in_time();

  std::shared_ptr<Context> context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_released_ = false, gave_way_ = false;
  std::thread guard_;
};

}  // namespace rooflm::backends::cuda
