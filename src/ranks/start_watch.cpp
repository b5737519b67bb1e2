// A start that takes long says what it waits for.
#include "ranks/start_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "core/system/terminal.h"

namespace rooflm::ranks {
namespace {

/// Whether it is asked to stop within that time.
bool is_done_within(double limit_s, const std::stop_token& done) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, done, std::chrono::duration<double>(limit_s), [] { return false; });
  return done.stop_requested();
}

}  // namespace

StartWatch::StartWatch(const Place& place, std::string waits_for, std::function<void()> at_limit)
    : thread_([limit_s = place.start_patience_s, says = place.is_first(), waits_for = std::move(waits_for),
               at_limit = std::move(at_limit)](const std::stop_token& done) {
        double left_s = limit_s;
        if (says && limit_s > kNoteSeconds) {
          if (is_done_within(kNoteSeconds, done)) return;
          core::write_message(fmt::format("waiting for {}, {:g} s at most", waits_for, limit_s));
          left_s -= kNoteSeconds;
        }
        if (at_limit && !is_done_within(left_s, done)) at_limit();
      }) {}

}  // namespace rooflm::ranks
