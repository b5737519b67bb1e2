// Continuous batching: requests get slots between two tokens, and leave them when they are done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "serve/schedule.h"
#include "serve/server_log.h"

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
  /// Reads the prompt into a free slot; the first token is there when it returns true. False: the request is
  /// given up, and the slot stays free.
  virtual bool join(std::size_t slot, std::uint64_t request) = 0;
  /// One more token of every slot that is taken.
  virtual void decode() = 0;
  /// The newest token of the slot came at `now_s`. True when its text is done, and the slot free.
  virtual bool took_token(std::size_t slot, double now_s) = 0;
  /// An engine ran. Called before the tokens of that step are taken.
  virtual void ran(const BatchStep& /*step*/) {}
};

/// Where the time went.
struct BatchTimes {
  std::int64_t decode_steps = 0;
  double prefill_s = 0, decode_s = 0;
  double used_slot_s = 0;  ///< the decode steps' time, each times its slots that had a text
};

/// Serves until the service is over. Between two tokens those that wait are given slots, whose prompts are
/// read one after another, while the other texts wait.
BatchTimes run_batches(Service& service, Schedule schedule);

}  // namespace rooflm::serve
