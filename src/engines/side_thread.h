// A thread for ops that run beside those of the lane compute, where kernels return when they are done.
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

/// Runs ops one after the other, in the order in which they are submitted, while the thread that submits them
/// does something else. Allocates nothing after it was made.
class SideThread {
 public:
  /// `run` is called in the thread, at most `ops` times between two calls of `begin`.
  SideThread(std::function<void(std::size_t op)> run, std::size_t ops);
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;
  /// Waits for the op that runs; those after it do not run any more.
  ~SideThread();

  /// A step begins: forgets the ops of the one before, which are done.
  void begin();
  /// Ops are submitted in increasing order.
  void submit(std::size_t op);
  /// Returns when that op and those before it are done. Throws what the first of all that failed has thrown.
  void wait_for(std::size_t op);
  /// The same of all that were submitted.
  void wait();
  /// When each of them ran; call it after `wait`.
  [[nodiscard]] std::span<const OpBeside> ops() const { return ops_; }

 private:
  void work();
  void wait_until(std::unique_lock<std::mutex>& lock, std::size_t count);

  std::function<void(std::size_t)> run_;
  std::mutex mutex_;
  std::condition_variable submitted_, done_;
  std::vector<OpBeside> ops_;
  std::size_t done_count_ = 0;  ///< of ops_
  std::exception_ptr failure_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace rooflm::engines
