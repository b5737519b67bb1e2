// A client that loads a server of OpenAI's API and times its answers.
#include "serve/load_client.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"
#include "core/statistics.h"
#include "core/stop_signals.h"
#include "serve/senders.h"

namespace rooflm::serve {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr const char* kLeftOut = "left out";  // where a signal ended the load

httplib::Client client_of(const Target& target) {
  httplib::Client client(target.origin);
  const auto timeout =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::duration<double>(target.timeout_s));
  client.set_read_timeout(timeout);
  client.set_write_timeout(timeout);
  client.set_tcp_nodelay(true);
  if (!target.key.empty()) client.set_bearer_token_auth(target.key);
  return client;
}

/// What a server sent; null where it is no JSON.
json parsed(std::string_view text) {
  try {
    return core::parse_json(text, "the server's answer", "it");
  } catch (const core::InputError&) {
    return nullptr;
  }
}

/// What the server said of an error: the message of an OpenAI-shaped one.
std::string said(const std::string& body) {
  if (const json answer = parsed(body); answer.is_object() && answer.contains("error")) {
    const json& error = answer["error"];
    if (error.is_object() && error.contains("message") && error["message"].is_string())
      return core::printable(error["message"].get<std::string>(), 200);
  }
  return core::printable(body);
}

/// One request on its way: reads the events of its stream.
class Stream {
 public:
  Stream(LoadResult& result, Clock::time_point start) : result_(&result), start_(start) {}

  bool receive(std::string_view bytes) {
    pending_ += bytes;
    if (pending_.size() > kMostEventBytes) {
      result_->error = "an event of the stream is larger than 1 MB";
      return false;
    }
    while (true) {
      const auto end = pending_.find('\n');
      if (end == std::string::npos) return true;
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.starts_with(kData)) take(std::string_view(line).substr(kData.size()));
    }
  }
  [[nodiscard]] bool is_done() const { return is_done_; }
  [[nodiscard]] const std::string& body() const { return pending_; }

 private:
  static constexpr std::string_view kData = "data:";
  static constexpr std::size_t kMostEventBytes = std::size_t{1} << 20U;

  void take(std::string_view data) {
    if (data.starts_with(' ')) data.remove_prefix(1);
    if (data == "[DONE]") {
      is_done_ = true;
      return;
    }
    const json event = parsed(data);
    if (!event.is_object()) return;
    if (event.contains("error")) {
      result_->error = said(std::string(data));
      return;
    }
    const double now_s = std::chrono::duration<double>(Clock::now() - start_).count();
    if (const auto choices = event.find("choices");
        choices != event.end() && choices->is_array() && !choices->empty() && has_token(choices->front())) {
      if (events_++ == 0) {
        result_->first_s = now_s;
      } else {
        result_->gaps_s.push_back(now_s - result_->last_s);
      }
      result_->last_s = now_s;
    }
    if (const auto usage = event.find("usage"); usage != event.end() && usage->is_object()) {
      result_->prompt_tokens = usage->value("prompt_tokens", result_->prompt_tokens);
      result_->new_tokens = usage->value("completion_tokens", result_->new_tokens);
    }
  }
  /// The first event of a chat only names the role; a last one may only say why it ended.
  static bool has_token(const json& choice) {
    if (!choice.is_object()) return false;
    const auto is_text = [](const json& of, const char* key) {
      const auto found = of.find(key);
      return found != of.end() && found->is_string() && !found->get_ref<const std::string&>().empty();
    };
    if (is_text(choice, "text")) return true;
    const auto delta = choice.find("delta");
    return delta != choice.end() && delta->is_object() && is_text(*delta, "content");
  }

  LoadResult* result_;
  Clock::time_point start_;
  std::string pending_;
  std::int64_t events_ = 0;
  bool is_done_ = false;
};

std::string body_of(const Target& target, const LoadRequest& request) {
  json body = {{"model", target.model},
               {"max_tokens", request.new_tokens},
               {"temperature", 0},
               {"ignore_eos", true},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"user", fmt::format("user-{}", request.user)}};
  if (target.is_chat) {
    body["messages"] = json::array({{{"role", "user"}, {"content", request.prompt}}});
  } else if (request.prompt_ids.empty()) {
    body["prompt"] = request.prompt;
  } else {
    body["prompt"] = request.prompt_ids;
  }
  return body.dump();
}

void send(const Target& target, const LoadRequest& request, Clock::time_point start, LoadResult& result) {
  httplib::Client client = client_of(target);
  Stream stream(result, start);
  httplib::Request http;
  http.method = "POST";
  http.path = target.prefix + (target.is_chat ? "/chat/completions" : "/completions");
  http.body = body_of(target, request);
  http.set_header("Content-Type", "application/json");
  http.content_receiver = [&](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
    return core::StopSignals::received() == 0 && stream.receive({data, size});
  };
  result.sent_s = std::chrono::duration<double>(Clock::now() - start).count();
  const httplib::Result answer = client.send(http);
  if (core::StopSignals::received() != 0 && !stream.is_done()) result.error = kLeftOut;
  if (!result.error.empty()) return;
  if (!answer) {
    result.error = "no answer: " + httplib::to_string(answer.error());
  } else if (answer->status != 200) {
    result.error = fmt::format("status {}: {}", answer->status,
                               said(answer->body.empty() ? stream.body() : answer->body));
  } else if (!stream.is_done()) {
    result.error = "the stream ended without [DONE]";
  } else if (result.first_s == 0) {
    result.error = "no text came";
  }
}

/// A figure of all requests, in ms.
struct Block {
  const char* title;
  const char* name;  ///< in vLLM's lines
  const char* key;   ///< in its JSON
  std::vector<double> ms;
};

std::vector<Block> blocks_of(const LoadReport& report) {
  constexpr double kMs = 1e3;
  Block ttft{"Time to First Token", "TTFT", "ttft", {}};
  Block tpot{"Time per Output Token (excl. 1st token)", "TPOT", "tpot", {}};
  Block itl{"Inter-token Latency", "ITL", "itl", {}};
  Block e2el{"End-to-end Latency", "E2EL", "e2el", {}};
  for (const LoadResult& result : report.results) {
    if (!result.is_ok()) continue;
    ttft.ms.push_back(kMs * result.ttft_s());
    if (const auto each = result.tpot_s()) tpot.ms.push_back(kMs * *each);
    for (const double gap : result.gaps_s) itl.ms.push_back(kMs * gap);
    e2el.ms.push_back(kMs * result.latency_s());
  }
  return {ttft, tpot, itl, e2el};
}

double mean_of(const std::vector<double>& values) { return values.empty() ? 0 : core::mean(values); }

/// Of the population, as numpy has it.
double deviation_of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  return values.empty() ? 0 : core::sample_std(values) * std::sqrt((n - 1) / n);
}

double quantile_of(const std::vector<double>& values, double percentile) {
  constexpr double kPercent = 100;
  return values.empty() ? 0 : core::quantile(values, percentile / kPercent);
}

/// Sums of a load.
struct Totals {
  std::int64_t completed = 0, failed = 0, prompt_tokens = 0, new_tokens = 0, good = 0;
  double peak_tokens_per_s = 0;
  std::int64_t peak_at_once = 0;
};

bool is_good(const LoadResult& result, const Goodput& limits) {
  const auto keeps = [](const std::optional<double>& limit, double value) {
    return !limit || value <= *limit;
  };
  return keeps(limits.ttft_s, result.ttft_s()) && keeps(limits.tpot_s, result.tpot_s().value_or(0)) &&
         keeps(limits.e2el_s, result.latency_s());
}

Totals totals_of(const LoadReport& report) {
  Totals totals;
  std::map<std::int64_t, double> in_second;
  std::vector<std::pair<double, int>> moves;  // +1: one more on its way
  for (const LoadResult& result : report.results) {
    if (!result.is_ok()) {
      ++totals.failed;
      continue;
    }
    ++totals.completed;
    totals.prompt_tokens += result.prompt_tokens;
    totals.new_tokens += result.new_tokens;
    if (is_good(result, report.goodput)) ++totals.good;
    double at_s = result.first_s;
    ++in_second[static_cast<std::int64_t>(at_s)];
    for (const double gap : result.gaps_s) ++in_second[static_cast<std::int64_t>(at_s += gap)];
    moves.emplace_back(result.sent_s, 1);
    moves.emplace_back(result.last_s, -1);
  }
  for (const auto& [second, tokens] : in_second)
    totals.peak_tokens_per_s = std::max(totals.peak_tokens_per_s, tokens);
  std::ranges::sort(moves);  // of equal times departures come first
  std::int64_t at_once = 0;
  for (const auto& [time_s, move] : moves)
    totals.peak_at_once = std::max(totals.peak_at_once, at_once += move);
  return totals;
}

std::string line(const std::string& name, const std::string& value) {
  return fmt::format("{:<40} {}\n", name + ":", value);
}

std::string ruled(const std::string& title) { return fmt::format("{:-^50}\n", " " + title + " "); }

}  // namespace

Target parse_target(const std::string& url) {
  const auto scheme = url.find("://");
  const std::string name = scheme == std::string::npos ? "" : url.substr(0, scheme);
  if (name != "http" && name != "https")
    throw core::UsageError(fmt::format("--url '{}': expected http://HOST:PORT", core::printable(url)));
  const auto path = url.find('/', scheme + 3);
  Target target{.origin = url.substr(0, path), .prefix = path == std::string::npos ? "" : url.substr(path)};
  while (target.prefix.ends_with('/')) target.prefix.pop_back();
  for (const std::string_view known : {"/chat/completions", "/completions"}) {
    if (!target.prefix.ends_with(known)) continue;
    target.is_chat = known.starts_with("/chat");
    target.prefix.erase(target.prefix.size() - known.size());
    break;
  }
  if (target.prefix.empty()) target.prefix = "/v1";
  return target;
}

std::string first_model(const Target& target) {
  const std::string path = target.prefix + "/models";
  const httplib::Result answer = client_of(target).Get(path);
  if (!answer)
    throw core::Unavailable(
        fmt::format("{}{}: no server answers ({})", target.origin, path, httplib::to_string(answer.error())));
  if (answer->status != 200)
    throw core::Unavailable(
        fmt::format("{}{}: status {}: {}", target.origin, path, answer->status, said(answer->body)));
  const json models = parsed(answer->body);
  if (models.is_object() && models.contains("data") && models["data"].is_array()) {
    for (const json& model : models["data"]) {
      if (model.is_object() && model.contains("id") && model["id"].is_string())
        return model["id"].get<std::string>();
    }
  }
  throw core::Unavailable(fmt::format("{}{} names no model", target.origin, path));
}

std::optional<double> LoadResult::tpot_s() const {
  if (new_tokens <= 1) return std::nullopt;
  return (latency_s() - ttft_s()) / static_cast<double>(new_tokens - 1);
}

std::vector<double> arrival_times(std::int64_t count, double rate, double burstiness, std::uint64_t seed) {
  std::vector<double> times(static_cast<std::size_t>(count), 0);
  if (!std::isfinite(rate)) return times;
  std::mt19937_64 random(seed);
  std::gamma_distribution<double> gap(burstiness, 1 / (rate * burstiness));
  double now_s = 0;
  for (double& time : times) time = now_s += gap(random);
  const double scale = now_s > 0 ? static_cast<double>(count) / rate / now_s : 1;
  for (double& time : times) time *= scale;
  return times;
}

std::vector<LoadResult> run_load(const Target& target, std::span<const LoadRequest> requests,
                                 std::size_t most_at_once) {
  std::vector<LoadResult> results;
  for (const LoadRequest& request : requests) {
    results.push_back({.arrival_s = request.arrival_s,
                       .prompt_tokens = std::ssize(request.prompt_ids),
                       .new_tokens = request.new_tokens,
                       .user = request.user,
                       .error = kLeftOut});
  }
  const Clock::time_point start = Clock::now();
  {
    Senders senders(most_at_once == 0 ? kMostAtOnce : most_at_once, [&](std::size_t i) {
      if (core::StopSignals::received() != 0) return;
      results[i].error.clear();
      send(target, requests[i], start, results[i]);
    });
    for (std::size_t i = 0; i < requests.size() && core::StopSignals::received() == 0; ++i) {
      const auto until = start + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(requests[i].arrival_s));
      constexpr auto kLook = std::chrono::milliseconds(50);
      while (Clock::now() < until && core::StopSignals::received() == 0)
        std::this_thread::sleep_until(std::min(until, Clock::now() + kLook));
      senders.give(i);
    }
  }
  std::erase_if(results, [](const LoadResult& result) { return result.error == kLeftOut; });
  return results;
}

double LoadReport::duration_s() const {
  double end_s = 0;
  for (const LoadResult& result : results) end_s = std::max(end_s, result.last_s);
  return end_s;
}

std::string LoadReport::text() const {
  const Totals totals = totals_of(*this);
  const double duration = duration_s();
  const auto rate_of = [&](double count) {
    return fmt::format("{:.2f}", duration > 0 ? count / duration : 0);
  };
  std::string text = fmt::format("{:=^50}\n", " Serving Benchmark Result ");
  text += line("Successful requests", std::to_string(totals.completed));
  text += line("Failed requests", std::to_string(totals.failed));
  if (most_at_once > 0) text += line("Maximum request concurrency", std::to_string(most_at_once));
  if (std::isfinite(rate)) text += line("Request rate configured (RPS)", fmt::format("{:.2f}", rate));
  text += line("Benchmark duration (s)", fmt::format("{:.2f}", duration));
  text += line("Total input tokens", std::to_string(totals.prompt_tokens));
  text += line("Total generated tokens", std::to_string(totals.new_tokens));
  text += line("Request throughput (req/s)", rate_of(static_cast<double>(totals.completed)));
  if (goodput.is_asked()) text += line("Request goodput (req/s)", rate_of(static_cast<double>(totals.good)));
  text += line("Output token throughput (tok/s)", rate_of(static_cast<double>(totals.new_tokens)));
  text += line("Peak output token throughput (tok/s)", fmt::format("{:.2f}", totals.peak_tokens_per_s));
  text += line("Peak concurrent requests", fmt::format("{:.2f}", static_cast<double>(totals.peak_at_once)));
  text += line("Total token throughput (tok/s)",
               rate_of(static_cast<double>(totals.prompt_tokens + totals.new_tokens)));
  for (const Block& block : blocks_of(*this)) {
    text += ruled(block.title);
    text += line(fmt::format("Mean {} (ms)", block.name), fmt::format("{:.2f}", mean_of(block.ms)));
    text += line(fmt::format("Median {} (ms)", block.name), fmt::format("{:.2f}", quantile_of(block.ms, 50)));
    for (const double p : percentiles)
      text +=
          line(fmt::format("P{:g} {} (ms)", p, block.name), fmt::format("{:.2f}", quantile_of(block.ms, p)));
  }
  std::vector<double> queued_ms;
  for (const LoadResult& result : results) {
    if (result.is_ok()) queued_ms.push_back(1e3 * (result.sent_s - result.arrival_s));
  }
  text += ruled("Client-side Queueing");
  text += line("Mean queue time (ms)", fmt::format("{:.2f}", mean_of(queued_ms)));
  for (const double p : percentiles)
    text += line(fmt::format("P{:g} queue time (ms)", p), fmt::format("{:.2f}", quantile_of(queued_ms, p)));
  return text + fmt::format("{:=^50}\n", "");
}

std::string LoadReport::json(const Target& target) const {
  const Totals totals = totals_of(*this);
  const double duration = duration_s();
  const auto per_s = [&](std::int64_t count) {
    return duration > 0 ? static_cast<double>(count) / duration : 0;
  };
  nlohmann::json out = {
      {"endpoint_type", target.is_chat ? "openai-chat" : "openai"},
      {"base_url", target.origin},
      {"model_id", target.model},
      {"num_prompts", results.size()},
      {"request_rate", std::isfinite(rate) ? nlohmann::json(rate) : nlohmann::json("inf")},
      {"burstiness", burstiness},
      {"max_concurrency", most_at_once > 0 ? nlohmann::json(most_at_once) : nlohmann::json(nullptr)},
      {"duration", duration},
      {"completed", totals.completed},
      {"failed", totals.failed},
      {"total_input_tokens", totals.prompt_tokens},
      {"total_output_tokens", totals.new_tokens},
      {"request_throughput", per_s(totals.completed)},
      {"output_throughput", per_s(totals.new_tokens)},
      {"total_token_throughput", per_s(totals.prompt_tokens + totals.new_tokens)},
      {"max_output_tokens_per_s", totals.peak_tokens_per_s},
      {"max_concurrent_requests", totals.peak_at_once}};
  out["request_goodput"] = goodput.is_asked() ? nlohmann::json(per_s(totals.good)) : nlohmann::json(nullptr);
  for (const char* list :
       {"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "errors"})
    out[list] = nlohmann::json::array();
  for (const LoadResult& result : results) {
    out["input_lens"].push_back(result.prompt_tokens);
    out["output_lens"].push_back(result.is_ok() ? result.new_tokens : 0);
    out["ttfts"].push_back(result.is_ok() ? result.ttft_s() : 0);
    out["itls"].push_back(result.gaps_s);
    out["latencies"].push_back(result.is_ok() ? result.latency_s() : 0);
    out["start_times"].push_back(result.sent_s);
    out["queue_times"].push_back(result.sent_s - result.arrival_s);
    out["errors"].push_back(result.error);
  }
  for (const Block& block : blocks_of(*this)) {
    out[fmt::format("mean_{}_ms", block.key)] = mean_of(block.ms);
    out[fmt::format("median_{}_ms", block.key)] = quantile_of(block.ms, 50);
    out[fmt::format("std_{}_ms", block.key)] = deviation_of(block.ms);
    for (const double p : percentiles)
      out[fmt::format("p{:g}_{}_ms", p, block.key)] = quantile_of(block.ms, p);
  }
  return out.dump(1) + "\n";
}

}  // namespace rooflm::serve
