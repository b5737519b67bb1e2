// Requests that arrive while others are served.
#include "lab/serving.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

/// A list of requests for a TokenServer.
class ListService : public serve::Service {
 public:
  ListService(TokenServer& server, std::span<const ServingRequest> requests)
      : server_(&server), requests_(requests), texts_(server.slots()) {
    for (const ServingRequest& request : requests) served_.push_back({.request = request});
    server.start_clock();
  }
  [[nodiscard]] std::size_t slots() const override { return server_->slots(); }
  [[nodiscard]] double now_s() override { return server_->now_s(); }
  void look_for_arrivals(serve::RequestQueue& queue) override {
    const double now_s = server_->now_s();
    for (; next_ < requests_.size() && requests_[next_].arrival_s <= now_s; ++next_)
      queue.arrive(
          {.request = next_, .user = requests_[next_].user, .prompt_tokens = requests_[next_].prompt_tokens});
  }
  void wait() override { server_->wait_until(requests_[next_].arrival_s); }
  [[nodiscard]] bool is_over() override { return done_ == requests_.size() || is_interrupted(); }
  bool join(std::size_t slot, std::uint64_t request) override {
    served_[request].admitted_s = server_->now_s();
    server_->join(slot, requests_[request]);
    texts_[slot] = {.request = request};
    return true;
  }
  train::StepTokens decode() override {
    server_->decode();
    return {};
  }
  Took took_tokens(std::size_t slot, double now_s) override {
    Text& text = texts_[slot];
    ServedRequest& request = served_[text.request];
    if (text.tokens == 0) request.first_token_s = now_s;
    if (++text.tokens < request.request.new_tokens) return {};
    request.finish_s = now_s;
    server_->leave(slot);
    ++done_;
    return {.is_done = true};
  }

  [[nodiscard]] static bool is_interrupted() { return core::StopSignals::received() != 0; }
  [[nodiscard]] std::vector<ServedRequest> take() { return std::move(served_); }
  [[nodiscard]] bool is_done() const { return done_ == requests_.size(); }

 private:
  struct Text {
    std::uint64_t request = 0;
    std::int64_t tokens = 0;
  };

  TokenServer* server_;
  std::span<const ServingRequest> requests_;
  std::vector<Text> texts_;  ///< by slot
  std::vector<ServedRequest> served_;
  std::size_t next_ = 0;  ///< that has not arrived
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
  ListService service(server, requests);
  const serve::BatchTimes times = serve::run_batches(service, schedule);
  return {.requests = service.take(), .times = times, .is_interrupted = !service.is_done()};
}

}  // namespace rooflm::lab
