// Threads that send requests, as many as are on their way.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace rooflm::serve {

/// Calls `send` with each number that is given to it, each on a thread of its own, at most so many at once.
/// Threads are started when they are needed; until then, and without work, none runs: the server may need the
/// processors.
class Senders {
 public:
  Senders(std::size_t most, std::function<void(std::size_t)> send) : most_(most), send_(std::move(send)) {}
  Senders(const Senders&) = delete;
  Senders& operator=(const Senders&) = delete;
  /// Waits until all is sent.
  ~Senders() {
    {
      const std::scoped_lock lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    threads_.clear();
  }
  void give(std::size_t number) {
    {
      const std::scoped_lock lock(mutex_);
      due_.push_back(number);
      if (due_.size() > idle_ && threads_.size() < most_) threads_.emplace_back([this] { work(); });
    }
    changed_.notify_one();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      changed_.wait(lock, [&] { return !due_.empty() || is_over_; });
      --idle_;
      if (due_.empty()) return;
      const std::size_t number = due_.front();
      due_.pop_front();
      lock.unlock();
      send_(number);
      lock.lock();
    }
  }

  std::size_t most_;
  std::function<void(std::size_t)> send_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::size_t> due_;
  std::size_t idle_ = 0;
  bool is_over_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace rooflm::serve
