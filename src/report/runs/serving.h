// Figures of online inference (rooflm study serving).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

/// One request; times are seconds since the load began, negative where it was never admitted or has no token.
struct RequestTimes {
  std::int64_t user = 0;
  double prompt_tokens = 0, new_tokens = 0;
  double arrival_s = 0, admitted_s = 0, first_token_s = 0, finish_s = 0;
  double guessed_tokens = 0, accepted_tokens = 0;  ///< of speculative decoding
  std::string finish{};                            ///< why it ended, where that is known

  /// Time to first token, from the arrival on: waiting in the queue and reading the prompt.
  [[nodiscard]] double ttft_s() const { return first_token_s - arrival_s; }
  [[nodiscard]] double queue_s() const { return admitted_s - arrival_s; }
  [[nodiscard]] double latency_s() const { return finish_s - arrival_s; }
  /// Time per output token after the first one; nothing for a single token.
  [[nodiscard]] std::optional<double> tpot_s() const;
};

/// Steps of a server, one after another.
struct ServedBatch {
  double begin_s = 0, end_s = 0;
  double steps = 0, texts = 0, prefill_tokens = 0, decode_tokens = 0;
  [[nodiscard]] double step_s() const { return (end_s - begin_s) / std::max(steps, 1.0); }
};

/// A load: requests at one rate, served with one schedule.
struct ServedLoad {
  std::string model{}, device{}, dtype{}, engine{}, schedule{};
  std::string configuration{};  ///< with sizes and shapes, as runs are named
  double slots = 0;
  std::optional<double> rate{};  ///< requests per second that arrived; nothing: all at once
  bool is_observed = false;      ///< a server's: whatever arrived, at the mean rate `rate`
  double prefill_s = 0, decode_s = 0, used_slot_s = 0;
  double ttft_limit_s = 0, tpot_limit_s = 0;
  std::vector<RequestTimes> requests{};  ///< that were answered
  std::vector<RequestTimes> failed{};    ///< that failed, or whose client left
  std::vector<ServedBatch> batches{};    ///< of a server

  /// Seconds from the first arrival to the last token.
  [[nodiscard]] double duration_s() const;
  [[nodiscard]] std::optional<double> requests_per_s() const;
  /// New tokens of all requests.
  [[nodiscard]] double tokens() const;
  /// Slots that had a text, of all slots, over the time of the decode steps.
  [[nodiscard]] std::optional<double> batch_share() const;
  /// Requests whose times to the first token and per token were both within the limits; nothing without any.
  [[nodiscard]] std::optional<double> slo_share() const;
};

/// One user's part of a load.
struct UserShare {
  std::int64_t user = 0;
  std::int64_t requests = 0;
  double tokens = 0;       ///< new ones
  double served = 0;       ///< tokens of prompts and new ones while all users had something to be served
  double ttft_s = 0;       ///< median
  double s_per_token = 0;  ///< mean of latency / new tokens ("normalized latency" of Orca and vLLM)
};
/// By user. All users compete until the first one has all its tokens: `served` counts the prompts whose first
/// token came by then, and new tokens as if evenly spaced between a request's first and last one.
std::vector<UserShare> users_of(const ServedLoad& load);

/// Jain's index (sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has everything (Jain, Chiu and Hawe,
/// "A quantitative measure of fairness and discrimination", DEC-TR-301, 1984). Nothing without any x > 0.
std::optional<double> jain_index(std::span<const double> shares);

/// The loads of a record in the order in which they were served. Those without any request are left out.
std::vector<ServedLoad> loads_of(const RecordFile& file);

/// Loads of one configuration and schedule.
struct Saturation {
  const ServedLoad* all_at_once = nullptr;  ///< its throughput is the most that there is; may be absent
  /// The highest rate up to which 90 % of requests kept the limits at every rate that was tried.
  const ServedLoad* highest = nullptr;
  const ServedLoad* failing = nullptr;     ///< the lowest rate at which they did not
  const ServedLoad* beyond = nullptr;      ///< the highest rate above `failing` at which they did, by chance
  std::vector<const ServedLoad*> loads{};  ///< all, by rate
};
/// Share of requests that must stay within the limits ("SLO attainment" of DistServe).
inline constexpr double kSloShare = 0.9;
/// Whether the loads are of one configuration, whatever their schedule.
bool is_same(const ServedLoad& a, const ServedLoad& b);
/// Those of which somebody chose the rate.
std::vector<Saturation> saturations(const std::vector<ServedLoad>& loads);

/// The answer of the study `serving`.
std::string answer_serving(const RecordSet& set);

}  // namespace rooflm::report
