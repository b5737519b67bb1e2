// What a server counts, in the form that Prometheus scrapes.
#include "serve/server_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace rooflm::serve {
namespace {

std::string header(const std::string& name, const char* kind, const char* help) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, kind, help);
}

template <class Value>
std::string single(const std::string& name, const char* kind, const char* help, Value value) {
  return header(name, kind, help) + fmt::format("{} {}\n", name, value);
}

}  // namespace

void Histogram::add(double value) {
  const auto bound = std::ranges::lower_bound(bounds_, value);
  ++counts_[static_cast<std::size_t>(bound - bounds_.begin())];
  sum_ += value;
}

std::string Histogram::lines(const std::string& name) const {
  std::string text;
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name,
                        i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf", below);
  }
  return text + fmt::format("{0}_sum {1}\n{0}_count {2}\n", name, sum_, below);
}

std::string ServerMetrics::text() const {
  std::string text =
      single("rooflm:num_requests_running", "gauge", "Requests that have a slot.", running) +
      single("rooflm:num_requests_waiting", "gauge", "Requests that wait for a slot.", waiting) +
      single("rooflm:prompt_tokens_total", "counter", "Tokens of prompts that were read.", prompt_tokens) +
      single("rooflm:generation_tokens_total", "counter", "Tokens that were made.", generation_tokens) +
      single("rooflm:spec_decode_num_draft_tokens_total", "counter", "Tokens that were guessed.",
             guessed_tokens) +
      single("rooflm:spec_decode_num_accepted_tokens_total", "counter",
             "Guessed tokens that the model chose, too.", accepted_tokens) +
      single("rooflm:request_refused_total", "counter", "Requests refused because too many waited.", refused);
  const std::string success = "rooflm:request_success_total";
  text += header(success, "counter", "Requests that ended, by reason.");
  for (const auto& [reason, count] : finished)
    text += fmt::format("{}{{finished_reason=\"{}\"}} {}\n", success, reason, count);
  const auto histogram = [&](const char* name, const char* help, const Histogram& values) {
    text += header(name, "histogram", help) + values.lines(name);
  };
  histogram("rooflm:time_to_first_token_seconds", "From the arrival to the first token.", ttft);
  histogram("rooflm:inter_token_latency_seconds", "Between one token of a request and its next.",
            inter_token);
  histogram("rooflm:e2e_request_latency_seconds", "From the arrival to the last token.", latency);
  histogram("rooflm:request_queue_time_seconds", "From the arrival to a slot.", queue);
  return text;
}

}  // namespace rooflm::serve
