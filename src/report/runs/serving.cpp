// Figures of requests that arrived while others were served.
#include "report/runs/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "core/ratio.h"
#include "core/statistics.h"
#include "core/units.h"
#include "report/model/summaries.h"

namespace rooflm::report {
namespace {

using core::ratio_of;

/// Cells of one row, numbers and texts.
struct CellRow {
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;
  [[nodiscard]] double number(const std::string& column, double otherwise = 0) const {
    const auto found = numbers.find(column);
    return found == numbers.end() ? otherwise : found->second;
  }
  [[nodiscard]] std::string text(const std::string& column) const {
    const auto found = texts.find(column);
    return found == texts.end() ? "" : found->second;
  }
};

std::map<std::int64_t, CellRow> rows_of(const RecordFile& file, std::string_view series) {
  std::map<std::int64_t, CellRow> rows;
  for (const record::Cell& cell : file.cells) {
    if (cell.series != series) continue;
    if (cell.value) {
      rows[cell.row].numbers[cell.col] = *cell.value;
    } else {
      rows[cell.row].texts[cell.col] = cell.text;
    }
  }
  return rows;
}

ServedLoad load_of(const CellRow& row) {
  ServedLoad load{.model = row.text("model"),
                  .device = row.text("device"),
                  .dtype = row.text("dtype"),
                  .engine = row.text("engine"),
                  .schedule = row.text("schedule"),
                  .configuration = row.text("configuration"),
                  .slots = row.number("slots"),
                  .prefill_s = row.number("prefill_s"),
                  .decode_s = row.number("decode_s"),
                  .used_slot_s = row.number("used_slot_s"),
                  .ttft_limit_s = row.number("ttft_limit_s"),
                  .tpot_limit_s = row.number("tpot_limit_s")};
  if (row.numbers.contains("rate")) load.rate = row.number("rate");
  load.is_observed = row.text("arrivals") == record::kObserved;
  return load;
}

RequestTimes request_of(const CellRow& row) {
  constexpr double kNever = -1;  // before any arrival
  return {.user = static_cast<std::int64_t>(row.number("user")),
          .prompt_tokens = row.number("prompt_tokens"),
          .new_tokens = row.number("new_tokens"),
          .arrival_s = row.number("arrival_s"),
          .admitted_s = row.number("admitted_s", kNever),
          .first_token_s = row.number("first_token_s", kNever),
          .finish_s = row.number("finish_s"),
          .guessed_tokens = row.number("guessed_tokens"),
          .accepted_tokens = row.number("accepted_tokens"),
          .finish = row.text("finish")};
}

ServedBatch batch_of(const CellRow& row) {
  return {.begin_s = row.number("begin_s"),
          .end_s = row.number("end_s"),
          .steps = row.number("steps"),
          .texts = row.number("texts"),
          .prefill_tokens = row.number("prefill_tokens"),
          .decode_tokens = row.number("decode_tokens")};
}

/// Whether all its times are there, and it has the tokens that it asked for.
bool was_answered(const CellRow& row) {
  const std::string finish = row.text("finish");
  return row.numbers.contains("first_token_s") && finish != "error" && finish != "cancelled";
}

/// What a server did while it ran, from its batches.
void add_observed(ServedLoad& load) {
  for (const ServedBatch& batch : load.batches) {
    const double busy_s = batch.end_s - batch.begin_s;
    const bool is_decode = batch.decode_tokens > 0;  // a chunk of a prompt may be in it
    (is_decode ? load.decode_s : load.prefill_s) += busy_s;
    if (is_decode) load.used_slot_s += batch.texts * busy_s;
  }
  std::vector<double> arrivals;
  for (const auto* list : {&load.requests, &load.failed}) {
    for (const RequestTimes& request : *list) arrivals.push_back(request.arrival_s);
  }
  if (arrivals.empty()) return;
  const auto [first, last] = std::ranges::minmax(arrivals);
  load.rate = ratio_of(static_cast<double>(arrivals.size() - 1), last - first);
}

/// When the first of the users has all that it asked for.
double contention_end_s(const ServedLoad& load) {
  std::map<std::int64_t, double> last;
  for (const RequestTimes& request : load.requests)
    last[request.user] = std::max(last[request.user], request.finish_s);
  double end_s = std::numeric_limits<double>::infinity();
  for (const auto& [user, finish_s] : last) end_s = std::min(end_s, finish_s);
  return end_s;
}

/// Tokens of a request that were served until `end_s`.
double served_until(const RequestTimes& request, double end_s) {
  if (request.first_token_s > end_s) return 0;
  const double all_s = request.finish_s - request.first_token_s;
  const double share = all_s > 0 ? std::min(1.0, (end_s - request.first_token_s) / all_s) : 1.0;
  return request.prompt_tokens + 1 + share * (request.new_tokens - 1);
}

/// Which of the loads, sorted by rate, kept the limits. What was tried twice at a rate must keep them twice.
void find_limits(Saturation& of) {
  const auto keeps = [](const ServedLoad* load) { return load->slo_share().value_or(1) >= kSloShare; };
  for (const ServedLoad* load : of.loads) {
    if (load->rate && of.failing == nullptr && !keeps(load)) of.failing = load;
  }
  for (const ServedLoad* load : of.loads) {
    if (!load->rate || !keeps(load)) continue;
    if (of.failing == nullptr || *load->rate < *of.failing->rate) of.highest = load;
    if (of.failing != nullptr && *load->rate > *of.failing->rate) of.beyond = load;
  }
}

}  // namespace

std::optional<double> RequestTimes::tpot_s() const {
  if (new_tokens < 2) return std::nullopt;
  return (finish_s - first_token_s) / (new_tokens - 1);
}

double ServedLoad::duration_s() const {
  double end_s = 0;
  double begin_s = std::numeric_limits<double>::infinity();
  for (const RequestTimes& request : requests) {
    end_s = std::max(end_s, request.finish_s);
    begin_s = std::min(begin_s, request.arrival_s);
  }
  return requests.empty() ? 0 : end_s - begin_s;
}

std::optional<double> ServedLoad::requests_per_s() const {
  return ratio_of(static_cast<double>(requests.size()), duration_s());
}

double ServedLoad::tokens() const {
  double sum = 0;
  for (const RequestTimes& request : requests) sum += request.new_tokens;
  return sum;
}

std::optional<double> ServedLoad::batch_share() const { return ratio_of(used_slot_s, slots * decode_s); }

std::optional<double> ServedLoad::slo_share() const {
  if (ttft_limit_s <= 0 && tpot_limit_s <= 0) return std::nullopt;
  const auto keeps = std::ranges::count_if(requests, [&](const RequestTimes& request) {
    return (ttft_limit_s <= 0 || request.ttft_s() <= ttft_limit_s) &&
           (tpot_limit_s <= 0 || request.tpot_s().value_or(0) <= tpot_limit_s);
  });
  return ratio_of(static_cast<double>(keeps), static_cast<double>(requests.size()));
}

std::vector<UserShare> users_of(const ServedLoad& load) {
  const double end_s = contention_end_s(load);
  std::map<std::int64_t, std::vector<const RequestTimes*>> by_user;
  for (const RequestTimes& request : load.requests) by_user[request.user].push_back(&request);
  std::vector<UserShare> users;
  for (const auto& [user, requests] : by_user) {
    UserShare share{.user = user, .requests = static_cast<std::int64_t>(requests.size())};
    std::vector<double> ttft_s;
    std::vector<double> s_per_token;
    for (const RequestTimes* request : requests) {
      share.tokens += request->new_tokens;
      share.served += served_until(*request, end_s);
      ttft_s.push_back(request->ttft_s());
      s_per_token.push_back(request->latency_s() / std::max(request->new_tokens, 1.0));
    }
    share.ttft_s = core::median(ttft_s);
    share.s_per_token = core::mean(s_per_token);
    users.push_back(share);
  }
  return users;
}

std::optional<double> jain_index(std::span<const double> shares) {
  double sum = 0;
  double squares = 0;
  for (const double share : shares) {
    sum += share;
    squares += share * share;
  }
  return ratio_of(sum * sum, static_cast<double>(shares.size()) * squares);
}

std::vector<ServedLoad> loads_of(const RecordFile& file) {
  std::map<std::int64_t, ServedLoad> by_row;
  for (const auto& [number, row] : rows_of(file, record::kServingSeries)) by_row[number] = load_of(row);
  const auto for_rows = [&](std::string_view series, auto add) {
    for (const auto& [number, row] : rows_of(file, series)) {
      const auto load = by_row.find(static_cast<std::int64_t>(row.number("load")));
      if (load != by_row.end()) add(load->second, row);
    }
  };
  for_rows(record::kServingRequestSeries, [](ServedLoad& load, const CellRow& row) {
    (was_answered(row) ? load.requests : load.failed).push_back(request_of(row));
  });
  for_rows(record::kServingBatchSeries,
           [](ServedLoad& load, const CellRow& row) { load.batches.push_back(batch_of(row)); });
  std::vector<ServedLoad> loads;
  for (auto& [number, load] : by_row) {
    if (load.is_observed) add_observed(load);
    if (!load.requests.empty() || !load.failed.empty()) loads.push_back(std::move(load));
  }
  return loads;
}

bool is_same(const ServedLoad& a, const ServedLoad& b) {
  return a.model == b.model && a.device == b.device && a.dtype == b.dtype && a.engine == b.engine &&
         a.slots == b.slots && a.configuration == b.configuration && a.ttft_limit_s == b.ttft_limit_s &&
         a.tpot_limit_s == b.tpot_limit_s;
}

std::vector<Saturation> saturations(const std::vector<ServedLoad>& loads) {
  std::vector<Saturation> found;
  for (const ServedLoad& load : loads) {
    if (load.is_observed) continue;
    const auto known = std::ranges::find_if(found, [&](const Saturation& of) {
      const ServedLoad& other = *of.loads.front();
      return other.schedule == load.schedule && is_same(other, load);
    });
    Saturation& of = known == found.end() ? found.emplace_back() : *known;
    of.loads.push_back(&load);
    if (!load.rate) of.all_at_once = &load;
  }
  for (Saturation& of : found) {
    std::ranges::stable_sort(of.loads, {}, [](const ServedLoad* load) {
      return load->rate.value_or(std::numeric_limits<double>::infinity());
    });
    find_limits(of);
  }
  return found;
}

namespace {

/// "fcfs at 18.8 requests/s (598 tokens/s)", of all requests at once; "" where that was not tried.
std::string saturation_of(const Saturation& of) {
  if (of.all_at_once == nullptr) return "";
  const ServedLoad& load = *of.all_at_once;
  return fmt::format("{} at {:.3g} requests/s ({:.0f} tokens/s)", load.schedule,
                     load.requests_per_s().value_or(0),
                     ratio_of(load.tokens(), load.duration_s()).value_or(0));
}

std::string rate_in_limits_of(const Saturation& of) {
  const std::string& schedule = of.loads.front()->schedule;
  if (std::ranges::none_of(of.loads, [](const ServedLoad* load) { return load->rate.has_value(); }))
    return "";
  const std::string by_chance = of.beyond == nullptr ? ""
                                                     : fmt::format(" (at {:.3g} by chance, not at {:.3g})",
                                                                   *of.beyond->rate, *of.failing->rate);
  if (of.highest != nullptr)
    return fmt::format("up to {:.3g} requests/s with {}{}", *of.highest->rate, schedule, by_chance);
  if (of.beyond == nullptr) return "at none of the rates tried with " + schedule;
  return fmt::format("at no rate up to {:.3g} requests/s with {}{}", *of.failing->rate, schedule, by_chance);
}

/// "0.65 with fcfs", of all requests at once; "" of a single user.
std::string fairness_of(const Saturation& of) {
  if (of.all_at_once == nullptr) return "";
  std::vector<double> served;
  for (const UserShare& user : users_of(*of.all_at_once)) served.push_back(user.served);
  const auto jain = jain_index(served);
  if (served.size() < 2 || !jain) return "";
  return fmt::format("{:.2f} with {}", *jain, of.all_at_once->schedule);
}

void add_part(std::string& list, const std::string& part) {
  if (list.empty() || part.empty()) {
    list += part;
  } else {
    list += ", " + part;
  }
}

/// What is said of the schedules of one configuration.
std::string answer_of_one(std::span<const Saturation> schedules) {
  const ServedLoad& any = *schedules.front().loads.front();
  std::string saturated;
  std::string limits;
  std::string fair;
  for (const Saturation& of : schedules) {
    add_part(saturated, saturation_of(of));
    add_part(limits, rate_in_limits_of(of));
    add_part(fair, fairness_of(of));
  }
  std::string text = fmt::format("{} {} with {} slots", any.model, any.dtype, any.slots);
  text += saturated.empty() ? ":" : " saturates: " + saturated;
  if (!saturated.empty()) text += limits.empty() ? "." : ";";
  if (!limits.empty()) {
    text +=
        fmt::format(" 90% of requests stayed within {} to the first token and {} per further token {}.",
                    core::format_seconds(any.ttft_limit_s), core::format_seconds(any.tpot_limit_s), limits);
  }
  if (!fair.empty())
    text += fmt::format(" With all requests at once, Jain's index of tokens over users is {}.", fair);
  return text;
}

}  // namespace

std::string answer_serving(const RecordSet& set) {
  std::string text;
  for (const RecordFile& file : set.files) {
    const std::vector<ServedLoad> loads = loads_of(file);
    const std::vector<Saturation> all = saturations(loads);
    for (std::size_t first = 0; first < all.size();) {
      std::size_t end = first + 1;
      while (end < all.size() && is_same(*all[first].loads.front(), *all[end].loads.front())) ++end;
      if (!text.empty()) text += ' ';
      text += answer_of_one(std::span(all).subspan(first, end - first));
      first = end;
    }
  }
  return text;
}

}  // namespace rooflm::report
