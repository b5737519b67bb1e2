// A thread for ops that overlap the `compute` lane.
#include "engines/side_thread.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/stop_signals.h"

namespace rooflm::engines {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

SideThread::SideThread(std::function<void(std::size_t)> run, std::size_t ops) : run_(std::move(run)) {
  ops_.reserve(ops);
  thread_ = std::thread([this] { work(); });
}

SideThread::~SideThread() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  submitted_.notify_one();
  thread_.join();
}

void SideThread::begin() {
  const std::lock_guard lock(mutex_);
  ops_.clear();
  done_count_ = 0;
}

void SideThread::submit(std::size_t op) {
  {
    const std::lock_guard lock(mutex_);
    ops_.push_back({.op = op});
  }
  submitted_.notify_one();
}

void SideThread::wait_for(std::size_t op) {
  std::unique_lock lock(mutex_);
  const auto after = std::ranges::upper_bound(ops_, op, {}, &OpBeside::op);
  wait_until(lock, static_cast<std::size_t>(after - ops_.begin()));
}

void SideThread::wait() {
  std::unique_lock lock(mutex_);
  wait_until(lock, ops_.size());
}

void SideThread::wait_until(std::unique_lock<std::mutex>& lock, std::size_t count) {
  done_.wait(lock, [&] { return done_count_ >= count || failure_ != nullptr; });
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void SideThread::work() {
  core::give_signal_stack();
  std::unique_lock lock(mutex_);
  while (true) {
    submitted_.wait(lock, [this] { return is_ending_ || done_count_ < ops_.size(); });
    if (is_ending_) return;
    const std::size_t place = done_count_;
    OpBeside running = ops_[place];
    lock.unlock();
    running.begin_ns = now_ns();
    std::exception_ptr failure;
    try {
      run_(running.op);
    } catch (...) {
      failure = std::current_exception();
    }
    running.end_ns = now_ns();
    lock.lock();
    ops_[place] = running;
    done_count_ = place + 1;
    failure_ = failure;
    done_.notify_one();
    if (failure_ != nullptr) return;
  }
}

}  // namespace rooflm::engines
