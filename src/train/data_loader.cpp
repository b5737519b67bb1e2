// The training loader: a thread fills a ring of batches, the consumer takes them in order.
#include "train/data_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "core/checked.h"
#include "core/error.h"
#include "core/shuffle.h"
#include "train/shard_windows.h"

namespace rooflm::train {

/// One producer thread, one consumer. Slot `i % slots_.size()` holds batch i; batches [taken_, made_) are
/// ready, and the slot of batch taken_ - 1 still belongs to the consumer.
class DataLoader::Worker {
 public:
  Worker(const std::vector<std::filesystem::path>& paths, const DataLoaderOptions& options,
         const LoaderState& state)
      : options_(options), windows_(paths, options.batch, options.seq, options.vocab_size) {
    if (options.prefetch < 1) throw core::UsageError("prefetch: expected at least 1 batch");
    slots_.resize(options.prefetch + 1);
    const auto n = static_cast<std::size_t>(core::Count(options.batch) * options.seq);
    for (auto& slot : slots_) {
      slot.tokens.resize(n);
      slot.targets.resize(n);
    }
    start(state);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { stop(); }

  void start(const LoaderState& state) {
    if (state.position >= windows_.count()) {
      throw core::UsageError(
          fmt::format("loader state: window {} of an epoch that has {} windows; other data, another "
                      "--seq?",
                      state.position, windows_.count()));
    }
    stop();
    state_ = state;
    made_ = taken_ = 0;
    error_ = nullptr;
    thread_ = std::jthread([this, state](const std::stop_token& stopped) { produce(stopped, state); });
  }

  const Batch& next() {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return made_ > taken_ || error_; };
    if (!ready()) {
      const auto begin = std::chrono::steady_clock::now();
      changed_.wait(lock, ready);
      wait_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    if (made_ == taken_) std::rethrow_exception(error_);
    const Batch& batch = slots_[taken_++ % slots_.size()];
    state_ = advance(state_);
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

  [[nodiscard]] const LoaderState& state() const { return state_; }
  [[nodiscard]] double wait_s() const { return wait_s_; }
  [[nodiscard]] const ShardWindows& windows() const { return windows_; }

 private:
  void stop() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
  }

  [[nodiscard]] LoaderState advance(LoaderState state) const {
    return skipping(state, options_.batch * options_.ranks);
  }

  [[nodiscard]] LoaderState skipping(LoaderState state, std::int64_t windows) const {
    state.position += static_cast<std::uint64_t>(windows);
    state.epoch += state.position / windows_.count();
    state.position %= windows_.count();
    return state;
  }

  void produce(const std::stop_token& stopped, LoaderState state) {
    for (std::uint64_t i = 0; !stopped.stop_requested(); ++i) {
      {
        // One slot is the consumer's, so a ring of n slots holds n - 1 batches ahead.
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stopped, [&] { return i - taken_ < slots_.size() - 1; })) return;
      }
      std::exception_ptr error;
      try {
        fill(state, slots_[i % slots_.size()]);
      } catch (...) {
        error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        if (error) {
          error_ = error;
        } else {
          made_ = i + 1;
        }
      }
      changed_.notify_all();
      if (error) return;
      state = advance(state);
    }
  }

  void fill(LoaderState state, Batch& batch) {
    state = skipping(state, options_.batch * options_.rank);
    for (std::int64_t row = 0; row < options_.batch; ++row) {
      const std::uint64_t place =
          options_.shuffle ? core::shuffled(state.position, windows_.count(), options_.seed, state.epoch)
                           : state.position;
      windows_.read(place, options_.seq, batch, row);
      if (++state.position == windows_.count()) state = {state.epoch + 1, 0};
    }
  }

  DataLoaderOptions options_;
  ShardWindows windows_;
  std::vector<Batch> slots_;
  LoaderState state_;
  double wait_s_ = 0;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::uint64_t made_ = 0;
  std::uint64_t taken_ = 0;
  std::exception_ptr error_;
  std::jthread thread_;  // last: it is stopped before what it uses goes
};

DataLoader::DataLoader(const std::vector<std::filesystem::path>& shards, const DataLoaderOptions& options,
                       const LoaderState& state)
    : worker_(std::make_unique<Worker>(shards, options, state)) {}
DataLoader::~DataLoader() = default;

const Batch& DataLoader::next() { return worker_->next(); }
LoaderState DataLoader::state() const { return worker_->state(); }
void DataLoader::seek(const LoaderState& state) { worker_->start(state); }
std::uint64_t DataLoader::windows() const { return worker_->windows().count(); }
std::uint64_t DataLoader::total_tokens() const { return worker_->windows().total_tokens(); }
double DataLoader::wait_s() const { return worker_->wait_s(); }

}  // namespace rooflm::train
