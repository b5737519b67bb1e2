// Which of the waiting requests is served next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "core/named.h"

namespace rooflm::serve {

using core::name_of;

/// `fcfs`: the first that came, as soon as a slot is free (continuous batching). `fair`: the same with the
/// first request of the user who was served least, by the Virtual Token Counter (Sheng et al., "Fairness in
/// Serving Large Language Models", OSDI 2024; a prompt's token counts 1, a new one 2). `shortest`: the
/// shortest prompt first, which may let a long one wait for ever. `batch`: as many as there are slots, once
/// all slots are free (static batching).
enum class Schedule : std::uint8_t { fcfs, fair, shortest, batch };
constexpr auto names_of(Schedule) {
  return core::named<Schedule>("schedule", {{Schedule::fcfs, "fcfs"},
                                            {Schedule::fair, "fair"},
                                            {Schedule::shortest, "shortest"},
                                            {Schedule::batch, "batch"}});
}

/// A request that has arrived and has no slot yet.
struct Waiting {
  std::uint64_t request = 0;  ///< its number
  std::uint64_t user = 0;
  std::int64_t prompt_tokens = 0;
};

/// Requests that wait, in the order of their arrival. Used by one thread.
class RequestQueue {
 public:
  explicit RequestQueue(Schedule schedule) : schedule_(schedule) {}

  void arrive(const Waiting& waiting);
  [[nodiscard]] bool is_empty() const { return waiting_.empty(); }
  /// Users whose service is known.
  [[nodiscard]] std::size_t remembered_users() const { return served_.size(); }
  /// The next one by the schedule. There must be one.
  [[nodiscard]] const Waiting& next() { return *find_next(); }
  /// The same, which leaves the queue.
  Waiting take();
  /// New tokens for a request of the user.
  void count_tokens(std::uint64_t user, std::int64_t tokens);

 private:
  std::deque<Waiting>::iterator find_next();
  void lift(std::uint64_t user);
  void forget_idle_users();

  Schedule schedule_;
  std::deque<Waiting> waiting_;
  std::map<std::uint64_t, double> served_;  ///< weighted tokens by user; `fair` only
  std::optional<std::uint64_t> last_user_;
};

}  // namespace rooflm::serve
