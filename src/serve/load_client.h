// A client that loads a server of OpenAI's API and times its answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rooflm::serve {

/// Where the server is.
struct Target {
  std::string origin;  ///< "http://127.0.0.1:8000"
  std::string prefix;  ///< of its paths: "/v1"
  std::string key{};   ///< sent as a bearer token; empty: none
  std::string model{};
  bool is_chat = false;
  double timeout_s = 600;  ///< without a byte from the server
};

/// Of "http://host:8000", with or without "/v1". Throws core::UsageError.
Target parse_target(const std::string& url);
/// The name of the first model of /v1/models. Throws core::Unavailable with what the server said.
std::string first_model(const Target& target);

/// A request to be sent.
struct LoadRequest {
  double arrival_s = 0;                    ///< after the load began
  std::vector<std::int32_t> prompt_ids{};  ///< or
  std::string prompt{};                    ///< a text, where there are no ids
  std::int64_t new_tokens = 1;
  std::size_t user = 0;
};

/// What became of it; times in seconds since the load began.
struct LoadResult {
  double arrival_s = 0;  ///< when it was to be sent
  double sent_s = 0;     ///< when it was: later where too many were on their way
  double first_s = 0, last_s = 0;
  std::vector<double> gaps_s{};  ///< between events with text
  std::int64_t prompt_tokens = 0, new_tokens = 0;
  std::size_t user = 0;
  std::string error{};  ///< empty: it was answered

  [[nodiscard]] bool is_ok() const { return error.empty(); }
  [[nodiscard]] double ttft_s() const { return first_s - sent_s; }
  [[nodiscard]] double latency_s() const { return last_s - sent_s; }
  /// Per token after the first; nothing for a single token.
  [[nodiscard]] std::optional<double> tpot_s() const;
};

/// `count` arrivals whose gaps are gamma distributed with the shape `burstiness` (1: a Poisson process; less:
/// bursts; more: evenly spaced), scaled so that the last is at count / rate, as `vllm bench serve` has it. An
/// infinite rate: all at 0.
std::vector<double> arrival_times(std::int64_t count, double rate, double burstiness, std::uint64_t seed);

/// Most requests on their way at once, each with a thread and a connection.
inline constexpr std::size_t kMostAtOnce = 1000;
/// Sends all at their times, at most `most_at_once` (0: kMostAtOnce) on their way at once, and reads their
/// streams. Texts are made to their full length (ignore_eos). A signal (core::StopSignals) ends it: requests
/// that were not answered by then are left out.
std::vector<LoadResult> run_load(const Target& target, std::span<const LoadRequest> requests,
                                 std::size_t most_at_once);

/// Limits that a good request keeps, all that are given ("goodput"), in seconds.
struct Goodput {
  std::optional<double> ttft_s{}, tpot_s{}, e2el_s{};
  [[nodiscard]] bool is_asked() const { return ttft_s || tpot_s || e2el_s; }
};

/// A load and its results, as `vllm bench serve` calls its figures.
struct LoadReport {
  double rate = 0;  ///< requests/s; infinite: all at once
  double burstiness = 1;
  std::size_t most_at_once = 0;
  Goodput goodput{};
  std::vector<double> percentiles{99};
  std::vector<LoadResult> results{};

  [[nodiscard]] double duration_s() const;
  /// The lines that it prints.
  [[nodiscard]] std::string text() const;
  /// Its JSON.
  [[nodiscard]] std::string json(const Target& target) const;
};

}  // namespace rooflm::serve
