// Requests that arrive while others are served.
#include "lab/serving.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/rng.h"
#include "core/stop_signals.h"

namespace rooflm::lab {
namespace {

constexpr std::uint64_t kArrivals = 0x61727269, kLengths = 0x6c656e67, kUsers = 0x75736572;
double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index, std::size_t word = 0) {
  return core::uniform(core::philox(seed, stream, index).at(word));
}

std::int64_t drawn(const LengthRange& range, double uniform) {
  return range.least + static_cast<std::int64_t>(uniform * static_cast<double>(range.most - range.least + 1));
}

std::size_t drawn_user(const std::vector<double>& users, double uniform) {
  double all = 0;
  for (const double user : users) all += user;
  double below = 0;
  for (std::size_t i = 0; i + 1 < users.size(); ++i) {
    below += users[i];
    if (uniform * all < below) return i;
  }
  return users.size() - 1;
}

/// Those that have arrived and have no slot yet.
class Queue {
 public:
  Queue(std::span<const ServingRequest> requests, Schedule schedule)
      : requests_(requests), is_fair_(schedule == Schedule::fair) {}

  void arrive(std::size_t request) {
    const std::size_t user = requests_[request].user;
    if (is_fair_) lift(user);
    waiting_.push_back(request);
  }
  [[nodiscard]] bool is_empty() const { return waiting_.empty(); }

  /// The next one, which leaves the queue.
  std::size_t take() {
    auto next = waiting_.begin();
    if (is_fair_) {
      next = std::ranges::min_element(waiting_, {},
                                      [&](std::size_t request) { return served_[requests_[request].user]; });
    }
    const std::size_t request = *next;
    waiting_.erase(next);
    last_user_ = requests_[request].user;
    served_[*last_user_] += static_cast<double>(requests_[request].prompt_tokens);
    return request;
  }

  /// A new token of the request.
  void count_token(std::size_t request) {
    constexpr double kNewToken = 2;
    served_[requests_[request].user] += kNewToken;
  }

 private:
  /// Nobody saves up service by not asking for it.
  void lift(std::size_t user) {
    const auto is_theirs = [&](std::size_t request) { return requests_[request].user == user; };
    if (std::ranges::any_of(waiting_, is_theirs)) return;
    double least = last_user_ ? served_[*last_user_] : 0;
    if (!waiting_.empty()) {
      least = std::numeric_limits<double>::infinity();
      for (const std::size_t request : waiting_) least = std::min(least, served_[requests_[request].user]);
    }
    served_[user] = std::max(served_[user], least);
  }

  std::span<const ServingRequest> requests_;
  bool is_fair_;
  std::deque<std::size_t> waiting_;
  std::map<std::size_t, double> served_;  ///< by user
  std::optional<std::size_t> last_user_;
};

/// Slots of one server, and what becomes of the requests.
class Service {
 public:
  Service(TokenServer& server, std::span<const ServingRequest> requests, Schedule schedule)
      : server_(&server),
        requests_(requests),
        queue_(requests, schedule),
        has_batches_(schedule == Schedule::batch),
        slots_(server.slots()) {
    for (const ServingRequest& request : requests) served_.requests.push_back({.request = request});
  }

  Served run() {
    server_->start_clock();
    while (done_ < requests_.size()) {
      if (core::StopSignals::received() != 0) {
        served_.is_interrupted = true;
        break;
      }
      look_for_arrivals();
      fill_slots();
      if (taken_ > 0) {
        decode();
      } else if (queue_.is_empty() && next_ < requests_.size()) {
        server_->wait_until(requests_[next_].arrival_s);
      }
    }
    return std::move(served_);
  }

 private:
  void look_for_arrivals() {
    const double now_s = server_->now_s();
    while (next_ < requests_.size() && requests_[next_].arrival_s <= now_s) queue_.arrive(next_++);
  }

  void fill_slots() {
    if (has_batches_ && taken_ > 0) return;
    for (std::size_t slot = 0; slot < slots_.size() && !queue_.is_empty(); ++slot) {
      if (!slots_[slot]) join(slot, queue_.take());
      if (!has_batches_) look_for_arrivals();
    }
  }

  void join(std::size_t slot, std::size_t index) {
    ServedRequest& request = served_.requests[index];
    request.admitted_s = server_->now_s();
    server_->join(slot, request.request);
    request.first_token_s = server_->now_s();
    served_.prefill_s += request.first_token_s - request.admitted_s;
    slots_[slot] = Text{.request = index};
    ++taken_;
    add_token(slot, request.first_token_s);
  }

  void decode() {
    const double begin_s = server_->now_s();
    server_->decode();
    const double end_s = server_->now_s();
    ++served_.decode_steps;
    served_.decode_s += end_s - begin_s;
    served_.used_slot_s += static_cast<double>(taken_) * (end_s - begin_s);
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot]) add_token(slot, end_s);
    }
  }

  /// The slot's text has one more token, and may be done.
  void add_token(std::size_t slot, double now_s) {
    Text& text = *slots_[slot];
    queue_.count_token(text.request);
    if (++text.tokens < requests_[text.request].new_tokens) return;
    served_.requests[text.request].finish_s = now_s;
    server_->leave(slot);
    slots_[slot].reset();
    --taken_;
    ++done_;
  }

  struct Text {
    std::size_t request = 0;
    std::int64_t tokens = 0;
  };

  TokenServer* server_;
  std::span<const ServingRequest> requests_;
  Queue queue_;
  bool has_batches_;
  std::vector<std::optional<Text>> slots_;
  Served served_;
  std::size_t next_ = 0;   ///< that has not arrived
  std::size_t taken_ = 0;  ///< slots
  std::size_t done_ = 0;
};

}  // namespace

std::int64_t ServingLoad::longest_prompt() const {
  if (lengths.empty()) return prompt.most;
  return std::ranges::max(lengths, {}, &std::pair<std::int64_t, std::int64_t>::first).first;
}

std::int64_t ServingLoad::longest_answer() const {
  if (lengths.empty()) return answer.most;
  return std::ranges::max(lengths, {}, &std::pair<std::int64_t, std::int64_t>::second).second;
}

std::vector<ServingRequest> draw_requests(const ServingLoad& load, double rate) {
  std::vector<ServingRequest> requests;
  double now_s = 0;
  for (std::int64_t i = 0; i < load.requests; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    ServingRequest request{.user = drawn_user(load.users, uniform(load.seed, kUsers, index))};
    if (load.lengths.empty()) {
      request.prompt_tokens = drawn(load.prompt, uniform(load.seed, kLengths, index, 0));
      request.new_tokens = drawn(load.answer, uniform(load.seed, kLengths, index, 1));
    } else {
      const auto& [prompt_tokens, new_tokens] = load.lengths[index % load.lengths.size()];
      request.prompt_tokens = prompt_tokens;
      request.new_tokens = new_tokens;
    }
    // The first comes at once: a server that waits for it measures nothing.
    if (i > 0 && std::isfinite(rate)) now_s -= std::log1p(-uniform(load.seed, kArrivals, index)) / rate;
    if (i > 0 && now_s > load.most_s) break;
    request.arrival_s = now_s;
    requests.push_back(request);
  }
  return requests;
}

Served serve(TokenServer& server, std::span<const ServingRequest> requests, Schedule schedule) {
  return Service(server, requests, schedule).run();
}

}  // namespace rooflm::lab
