// Continuous batching: requests get slots between two tokens, and leave them when they are done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "serve/schedule.h"
#include "serve/server_log.h"
#include "train/batch_decoder.h"

namespace rooflm::serve {

/// What a Batcher drives: requests as they come, and slots, each with one text.
class Service {
 public:
  Service() = default;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  virtual ~Service() = default;
  [[nodiscard]] virtual std::size_t slots() const = 0;
  /// Seconds on a clock that does not run backwards.
  [[nodiscard]] virtual double now_s() = 0;
  /// Puts those into the queue that came since the last call.
  virtual void look_for_arrivals(RequestQueue& queue) = 0;
  /// There is nothing to do: returns when that may have changed.
  virtual void wait() = 0;
  /// Whether nothing more is to be done.
  [[nodiscard]] virtual bool is_over() = 0;
  /// Whether there is memory for one more text. Where not, it is waited for, also by those that came later.
  [[nodiscard]] virtual bool has_room(std::uint64_t /*request*/) { return true; }
  /// Gives a free slot to the request. False: the request is given up, and the slot stays free.
  virtual bool join(std::size_t slot, std::uint64_t request) = 0;
  /// One more step of every slot that is taken; what it read.
  virtual train::StepTokens decode() = 0;
  /// Whether the last join or decode made a token of the slot's text, or the text is to end: not while its
  /// prompt is read.
  [[nodiscard]] virtual bool has_news(std::size_t /*slot*/) { return true; }
  /// The newest tokens of the slot came at `now_s`. When its text is done, the slot is free.
  struct Took {
    std::int64_t tokens = 1;
    bool is_done = false;
  };
  virtual Took took_tokens(std::size_t slot, double now_s) = 0;
  /// An engine ran. Called before the tokens of that step are taken.
  virtual void ran(const BatchStep& /*step*/) {}
};

/// Where the time went.
struct BatchTimes {
  std::int64_t decode_steps = 0;
  double prefill_s = 0, decode_s = 0;
  double used_slot_s = 0;  ///< the decode steps' time, each times its slots that had a text
};

/// Serves until the service is over. Between two steps those that wait are given slots.
BatchTimes run_batches(Service& service, Schedule schedule);

}  // namespace rooflm::serve
