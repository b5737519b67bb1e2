// Online inference: scheduling of arriving requests, and their waiting times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/batcher.h"

namespace rooflm::lab {

using serve::Schedule;

/// A text to be continued, of a user.
struct ServingRequest {
  std::size_t user = 0;
  std::int64_t prompt_tokens = 0, new_tokens = 0;  ///< at least 1 each
  double arrival_s = 0;
};

/// When it was served, in seconds as `arrival_s`.
struct ServedRequest {
  ServingRequest request{};
  double admitted_s = 0, first_token_s = 0, finish_s = 0;
  std::int64_t guessed_tokens = 0, accepted_tokens = 0;  ///< of speculative decoding
  std::string finish{};                                  ///< why it ended, where that is known

  /// Times that it never reached are negative.
  [[nodiscard]] bool was_admitted() const { return admitted_s >= 0; }
  [[nodiscard]] bool has_token() const { return first_token_s >= 0; }
};

/// Uniform whole numbers, both ends included.
struct LengthRange {
  std::int64_t least = 1, most = 1;
};

/// What arrives.
struct ServingLoad {
  std::int64_t requests = 64;
  LengthRange prompt{.least = 16, .most = 128}, answer{.least = 8, .most = 64};
  /// Prompt and answer of each request, in turn from the first on; none: drawn from the ranges.
  std::vector<std::pair<std::int64_t, std::int64_t>> lengths{};
  std::vector<double> users{1};  ///< how often requests are of each, relative to each other
  double most_s = 1e9;           ///< nothing arrives later
  std::uint64_t seed = 0;
  [[nodiscard]] std::int64_t longest_prompt() const;
  [[nodiscard]] std::int64_t longest_answer() const;
};

/// Requests in the order of their arrival: a Poisson process of `rate` requests per second, so that the times
/// between them are exponential; an infinite rate: all at 0. Lengths and users are the same at every rate.
/// The first request is always there.
std::vector<ServingRequest> draw_requests(const ServingLoad& load, double rate);

/// What serves: slots, of which each has one text, and a clock.
class TokenServer {
 public:
  TokenServer() = default;
  TokenServer(const TokenServer&) = delete;
  TokenServer& operator=(const TokenServer&) = delete;
  virtual ~TokenServer() = default;
  [[nodiscard]] virtual std::size_t slots() const = 0;
  /// Reads a prompt into a free slot; the first token is there when it returns.
  virtual void join(std::size_t slot, const ServingRequest& request) = 0;
  /// One more token of every slot that is taken.
  virtual void decode() = 0;
  virtual void leave(std::size_t slot) = 0;
  /// Zero of the clock is now.
  virtual void start_clock() = 0;
  [[nodiscard]] virtual double now_s() = 0;
  virtual void wait_until(double time_s) = 0;
};

/// What serving a load was.
struct Served {
  std::vector<ServedRequest> requests{};  ///< in the order of their arrival
  serve::BatchTimes times{};
  bool is_interrupted = false;  ///< a signal asked to stop (core::StopSignals): not all were served
};

/// Serves all requests, which stand in the order of their arrival, as serve::run_batches does.
Served serve(TokenServer& server, std::span<const ServingRequest> requests, Schedule schedule);

}  // namespace rooflm::lab
