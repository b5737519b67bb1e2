// The recording of one process: the stream, what the device tells, and when both are on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "inject/device_source.h"
#include "inject/stack_sampler.h"
#include "inject/stream_writer.h"
#include "inject/trace_rhythm.h"

namespace rooflm::inject {

/// Nanoseconds of std::chrono::steady_clock, as rows have them.
std::uint64_t now_ns();
/// The calling thread, as the operating system numbers it.
std::uint32_t thread_number();

/// What the recorder asked for (stream_format.h names the variables).
struct Wishes {
  std::string folder, capture, keep, calls = "all";
  StackSampler::Wishes stacks{};
  std::uint64_t skip = 0, steps = 0, duration_ms = 0;  ///< 0 steps, 0 ms: no limit
  std::uint64_t trace_every = 1;                       ///< TraceRhythm
  std::uint64_t most_bytes = ~std::uint64_t{0};
  static Wishes from_environment();
};

class Session {
 public:
  /// The one of this process, begun by whoever asks first; nullptr where nothing is to be recorded or the
  /// file cannot be made.
  static Session* begin();
  /// The one that was begun; nullptr in a child that was forked.
  static Session* current() { return current_.load(std::memory_order_acquire); }

  /// The driver is there: its activities are asked for. Once.
  void start_device();
  [[nodiscard]] StreamWriter& writer() { return *writer_; }
  /// Nothing where stacks are not sampled.
  [[nodiscard]] StackSampler* stacks() { return stacks_.get(); }
  /// Whether ranges and activities are kept now.
  [[nodiscard]] bool is_on() const { return is_on_.load(std::memory_order_relaxed); }

  /// Whether ranges decide what is recorded: then they have to be shown.
  [[nodiscard]] bool is_watching() const { return is_watching_; }
  /// A range of that name (and its number) is about to be opened, was closed: it may be the one that is
  /// captured, or a step.
  void see_push(std::uint32_t number, std::string_view name);
  void see_pop(std::uint32_t number);
  /// A step of the training loop ended. Whether activities of the next one are kept.
  bool end_step();
  /// Whether those of this one are.
  [[nodiscard]] bool is_traced() const { return is_traced_.load(std::memory_order_relaxed); }
  /// From here on only those activities are kept (DeviceSource::choose), "" none: what the recorder costs is
  /// measured with it.
  void choose(const std::string& activities);
  /// Writes everything. Called at the end of the process.
  void end();
  /// Has it called then. What is registered last runs first, and it has to run before a library that is asked
  /// for activities has cleaned up: so once more whenever one has begun.
  static void end_at_exit();

  ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  Session(Wishes wishes, std::unique_ptr<StreamWriter> writer);
  void note_process();
  void tick();
  void switch_to(bool on);
  /// `mutex_` is held.
  void count_step();
  void trace_step(bool wanted);

  static std::atomic<Session*> current_;
  Wishes wishes_;
  bool is_watching_;
  std::uint32_t captured_ = 0;  ///< the number of the name of the range that is captured
  std::unique_ptr<StreamWriter> writer_;
  std::unique_ptr<DeviceSource> device_;
  std::unique_ptr<StackSampler> stacks_;
  TraceRhythm rhythm_;
  std::atomic<bool> is_on_{false}, is_traced_{true};
  std::mutex mutex_;                   ///< of the switch, the device and what is counted
  std::optional<std::string> chosen_;  ///< activities, where they were chosen
  bool has_started_device_ = false, is_over_ = false;
  std::uint64_t seen_ = 0;         ///< steps, or ranges that are captured
  std::uint64_t on_since_ns_ = 0;  ///< 0: never
  std::string step_name_;          ///< what counts as a step, "" as long as nothing did
  int depth_ = 0;                  ///< of ranges that are captured
  std::condition_variable wake_;
  std::mutex wake_mutex_;
  bool is_ending_ = false;
  std::thread ticker_;
};

}  // namespace rooflm::inject
