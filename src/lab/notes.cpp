// Progress and messages: lines on standard error.
#include "lab/notes.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>

namespace rooflm::lab {
namespace {

/// Of the process, as its standard error is.
std::atomic<Talk> process_talk = Talk::normal;

}  // namespace

void set_talk(Talk talk) { process_talk = talk; }

Talk talk() { return process_talk; }

StillAt::StillAt(std::string what, std::chrono::milliseconds every)
    : thread_([what = std::move(what), every](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        auto passed = every;
        while (!wake.wait_for(lock, stop, every, [] { return false; }) && !stop.stop_requested()) {
          note("{}, {:.1f} s so far", what, std::chrono::duration<double>(passed).count());
          passed += every;
        }
      }) {}

}  // namespace rooflm::lab
