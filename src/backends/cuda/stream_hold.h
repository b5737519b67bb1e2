// Holds a stream back while work is submitted to it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "backends/backend.h"
#include "backends/cuda/context.h"

namespace rooflm::backends::cuda {

/// The stream waits for a number in pinned host memory, at no cost afterwards. A separate thread releases it
/// after kMostMs: if the queue of a held stream is full, the submitting thread would wait for the stream
/// forever.
class StreamHold final : public Hold {
 public:
  /// nullptr if the driver lacks stream memory operations.
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
