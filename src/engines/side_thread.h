// A thread for ops that overlap the `compute` lane, on backends whose kernels are synchronous.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engines/observer.h"

namespace rooflm::engines {

/// Runs ops one at a time in submission order while the submitting thread does other work. Allocates nothing
/// after construction.
class SideThread {
 public:
  /// `run` is called on the thread, at most `ops` times between two calls of `begin`.
  SideThread(std::function<void(std::size_t op)> run, std::size_t ops);
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;
  /// Waits for the running op; submitted ops that have not started are dropped.
  ~SideThread();

  /// Starts a new step: forgets the ops of the previous one, all of which must be done.
  void begin();
  /// Submits an op. Indices must increase.
  void submit(std::size_t op);
  /// Returns when that op and all before it are done. Rethrows the first exception of any op.
  void wait_for(std::size_t op);
  /// The same for all submitted ops.
  void wait();
  /// When each op ran; call it after `wait`.
  [[nodiscard]] std::span<const OpBeside> ops() const { return ops_; }

 private:
  void work();
  void wait_until(std::unique_lock<std::mutex>& lock, std::size_t count);

  std::function<void(std::size_t)> run_;
  std::mutex mutex_;
  std::condition_variable submitted_, done_;
  std::vector<OpBeside> ops_;
  std::size_t done_count_ = 0;  ///< ops_ that are done
  std::exception_ptr failure_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace rooflm::engines
