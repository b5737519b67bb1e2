// The view of requests that arrive while others are served: throughput, latency and fairness over the rate.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/ratio.h"
#include "core/statistics.h"
#include "report/runs/serving.h"
#include "report/tables/typed_columns.h"
#include "report/views/view.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

using Figure = std::optional<double> (*)(const RequestTimes&);
std::optional<double> ttft_of(const RequestTimes& request) { return request.ttft_s(); }
std::optional<double> tpot_of(const RequestTimes& request) { return request.tpot_s(); }
std::optional<double> queue_of(const RequestTimes& request) { return request.queue_s(); }
std::optional<double> latency_of(const RequestTimes& request) { return request.latency_s(); }

std::vector<double> values_of(const ServedLoad& load, Figure figure) {
  std::vector<double> values;
  for (const RequestTimes& request : load.requests) {
    if (const auto value = figure(request)) values.push_back(*value);
  }
  return values;
}

std::optional<double> fairness_of(const std::vector<UserShare>& users, double UserShare::*share) {
  std::vector<double> shares;
  for (const UserShare& user : users) shares.push_back(user.*share);
  return jain_index(shares);
}

/// What tells a load from others; `in_table`: whether the table has a column of the model, dtype and slots.
TypedColumns<ServedLoad> load_names(bool in_table) {
  const Seen seen = in_table ? Seen::always : Seen::never;
  return {{"configuration", "configuration", &ServedLoad::configuration, Seen::when_differs},
          {"model", "model", &ServedLoad::model, seen},
          {"dtype", "dtype", &ServedLoad::dtype, seen},
          {"device", &ServedLoad::device},
          {"engine", &ServedLoad::engine},
          {"slots", "slots", &ServedLoad::slots, seen},
          {"schedule", "schedule", &ServedLoad::schedule}};
}

Cell rate_of(const ServedLoad& load) {
  return load.rate || load.is_observed ? cell_of(load.rate) : Cell("all at once");
}

const TypedColumns<ServedLoad>& load_columns() {
  static const TypedColumns<ServedLoad> columns = [] {
    const auto quantile = [](Figure figure, double q) {
      return [=](const ServedLoad& load) {
        const std::vector<double> values = values_of(load, figure);
        return values.empty() ? std::nullopt : std::optional(core::quantile(values, q));
      };
    };
    const auto of_time = [](double ServedLoad::*part) {
      return [part](const ServedLoad& load) { return ratio_of(load.*part, load.duration_s()); };
    };
    TypedColumns<ServedLoad> all = load_names(false);
    return all.add(
        {{"rate", "rate [req/s]", rate_of, Show::brief},
         {"requests", "requests", [](const ServedLoad& load) { return load.requests.size(); }},
         {"failed", "failed",
          [](const ServedLoad& load) {
            return load.failed.empty() ? std::nullopt : std::optional(load.failed.size());
          },
          Seen::when_known},
         {"duration_s", &ServedLoad::duration_s},
         {"requests_per_s", "req/s", &ServedLoad::requests_per_s, Show::brief, "req/s"},
         {"tokens_per_s", "tok/s",
          [](const ServedLoad& load) { return ratio_of(load.tokens(), load.duration_s()); }, Show::si,
          "tok/s"},
         {"ttft_median_s", "TTFT median", quantile(ttft_of, 0.5), Show::seconds},
         {"ttft_p90_s", "p90", quantile(ttft_of, 0.9), Show::seconds},
         {"ttft_p99_s", "p99", quantile(ttft_of, 0.99), Show::seconds},
         {"tpot_median_s", "TPOT median", quantile(tpot_of, 0.5), Show::seconds},
         {"tpot_p90_s", "p90", quantile(tpot_of, 0.9), Show::seconds},
         {"tpot_p99_s", "p99", quantile(tpot_of, 0.99), Show::seconds},
         {"queue_median_s", "queue median", quantile(queue_of, 0.5), Show::seconds},
         {"queue_p90_s", quantile(queue_of, 0.9)},
         {"queue_p99_s", "p99", quantile(queue_of, 0.99), Show::seconds},
         {"e2el_median_s", quantile(latency_of, 0.5)},
         {"e2el_p90_s", quantile(latency_of, 0.9)},
         {"e2el_p99_s", quantile(latency_of, 0.99)},
         {"batch_share", "of slots", &ServedLoad::batch_share, Show::percent},
         {"prefill_share", of_time(&ServedLoad::prefill_s)},
         {"decode_share", of_time(&ServedLoad::decode_s)},
         {"slo_share", "in limits", &ServedLoad::slo_share, Show::percent},
         // At a rate below saturation users do not compete: theirs would be the shares that they asked for.
         {"fairness_served", "Jain, tokens",
          [](const ServedLoad& load) {
            return load.rate || load.is_observed ? std::nullopt
                                                 : fairness_of(users_of(load), &UserShare::served);
          },
          Show::fixed3},
         {"fairness_latency", "Jain, latency",
          [](const ServedLoad& load) { return fairness_of(users_of(load), &UserShare::s_per_token); },
          Show::fixed3}});
  }();
  return columns;
}

const TypedColumns<Saturation>& saturation_columns() {
  static const TypedColumns<Saturation> columns = [] {
    const auto first = [](const Saturation& of) { return of.loads.front(); };
    TypedColumns<Saturation> all{};
    all.add(load_names(true), first);
    return all.add(
        {{"saturation_req_per_s", "saturates at",
          [](const Saturation& of) {
            return of.all_at_once == nullptr ? std::nullopt : of.all_at_once->requests_per_s();
          },
          Show::brief, "req/s"},
         {"saturation_tokens_per_s", "tok/s",
          [](const Saturation& of) {
            return of.all_at_once == nullptr
                       ? std::nullopt
                       : ratio_of(of.all_at_once->tokens(), of.all_at_once->duration_s());
          },
          Show::si, "tok/s"},
         {"rate_in_limits", "rate in limits",
          [](const Saturation& of) { return of.highest == nullptr ? std::nullopt : of.highest->rate; },
          Show::brief, "req/s"},
         {"ttft_limit_s", "TTFT limit", [](const Saturation& of) { return of.loads.front()->ttft_limit_s; },
          Show::seconds},
         {"tpot_limit_s", "TPOT limit", [](const Saturation& of) { return of.loads.front()->tpot_limit_s; },
          Show::seconds}});
  }();
  return columns;
}

/// A user of a load among the others.
struct ServedUser : UserShare {
  const ServedLoad* load = nullptr;
  double served_by_all = 0;
  [[nodiscard]] std::optional<double> served_share() const {
    return load->rate || load->is_observed ? std::nullopt : ratio_of(served, served_by_all);
  }
};

const TypedColumns<ServedUser>& user_columns() {
  static const TypedColumns<ServedUser> columns = [] {
    TypedColumns<ServedUser> all{};
    all.add(load_names(false), &ServedUser::load);
    return all.add(
        {{"rate", "rate [req/s]", [](const ServedUser& of) { return rate_of(*of.load); }, Show::brief},
         {"user", "user", &ServedUser::user},
         {"requests", "requests", &ServedUser::requests},
         {"tokens", "tokens", [](const ServedUser& of) { return whole(of.tokens); }},
         {"served_share", "of service", &ServedUser::served_share, Show::percent},
         {"ttft_median_s", "TTFT median", &ServedUser::ttft_s, Show::seconds},
         {"s_per_token", "latency per token", &ServedUser::s_per_token, Show::seconds}});
  }();
  return columns;
}

std::vector<ServedUser> served_users(const std::vector<ServedLoad>& loads) {
  std::vector<ServedUser> rows;
  for (const ServedLoad& load : loads) {
    const std::vector<UserShare> users = users_of(load);
    if (users.size() < 2) continue;
    double served = 0;
    for (const UserShare& user : users) served += user.served;
    for (const UserShare& user : users) rows.push_back({user, &load, served});
  }
  return rows;
}

/// The schedule, with what else tells the loads apart.
std::string line_name(const ServedLoad& load, const std::vector<Saturation>& all) {
  const auto differ = [&](auto member) {
    return std::ranges::any_of(
        all, [&](const Saturation& of) { return of.loads.front()->*member != load.*member; });
  };
  std::string name = load.schedule;
  for (const auto member :
       {&ServedLoad::model, &ServedLoad::dtype, &ServedLoad::engine, &ServedLoad::device}) {
    if (differ(member)) name += ", " + load.*member;
  }
  if (differ(&ServedLoad::slots)) name += fmt::format(", {} slots", load.slots);
  const bool is_told = std::ranges::none_of(all, [&](const Saturation& of) {
    const ServedLoad& other = *of.loads.front();
    return other.configuration != load.configuration && other.model == load.model &&
           other.dtype == load.dtype && other.engine == load.engine && other.device == load.device &&
           other.slots == load.slots;
  });
  return is_told ? name : load.schedule + ", " + load.configuration;
}

/// One line for each schedule and percentile, over the rates.
Chart latency_chart(const std::string& id, const std::string& title, const std::vector<ServedLoad>& loads,
                    Figure figure, double ServedLoad::*limit_s) {
  Chart chart{
      .id = "serving." + id,
      .title = title,
      .note =
          "Median and 99th percentile over the requests. limit: 5 times the median of requests served alone.",
      .kind = ChartKind::line,
      .x = {.title = "requests that arrive per second", .unit = "req/s"},
      .y = {.title = title, .unit = "s", .is_log = true}};
  const std::vector<Saturation> lines = saturations(loads);
  for (const Saturation& of : lines) {
    const std::string name = line_name(*of.loads.front(), lines);
    for (const auto& [which, q] : {std::pair{"median", 0.5}, {"p99", 0.99}}) {
      for (const ServedLoad* load : of.loads) {
        const std::vector<double> values = values_of(*load, figure);
        if (!load->rate || values.empty()) continue;
        series_named(chart, fmt::format("{}, {}", name, which))
            .points.push_back({.x = *load->rate, .y = core::quantile(values, q)});
      }
    }
  }
  const auto limit_of = [&](const Saturation& of) { return of.loads.front()->*limit_s; };
  const bool is_one = !lines.empty() && std::ranges::all_of(lines, [&](const Saturation& of) {
    return limit_of(of) == limit_of(lines.front());
  });
  if (is_one && limit_of(lines.front()) > 0)
    chart.limit = ChartLimit{.y = limit_of(lines.front()), .name = "limit"};
  return chart;
}

Chart throughput_chart(const std::vector<ServedLoad>& loads) {
  Chart chart{.id = "serving.throughput",
              .title = "Throughput over the rate of requests",
              .note = "New tokens of all requests, from the first arrival to the last token.",
              .kind = ChartKind::line,
              .x = {.title = "requests that arrive per second", .unit = "req/s"},
              .y = {.title = "output tokens per second", .unit = "tok/s"}};
  const std::vector<Saturation> lines = saturations(loads);
  for (const Saturation& of : lines) {
    const std::string name = line_name(*of.loads.front(), lines);
    for (const ServedLoad* load : of.loads) {
      const auto rate = ratio_of(load->tokens(), load->duration_s());
      if (!load->rate || !rate) continue;
      series_named(chart, name).points.push_back({.x = *load->rate, .y = *rate});
    }
  }
  return chart;
}

void add_serving(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    const std::vector<ServedLoad> loads = loads_of(set.files[i]);
    if (loads.empty()) continue;
    const std::string of = set.files.size() == 1 ? "" : fmt::format(".{}", i + 1);
    view.add("serving" + of, "Served loads", load_columns().table(loads));
    view.add("serving.saturation" + of, "Saturation", saturation_columns().table(saturations(loads)));
    view.add("serving.users" + of, "Users", user_columns().table(served_users(loads)));
    view.add(latency_chart("ttft" + of, "Time to first token", loads, ttft_of, &ServedLoad::ttft_limit_s));
    view.add(latency_chart("tpot" + of, "Time per output token", loads, tpot_of, &ServedLoad::tpot_limit_s));
    view.add(throughput_chart(loads));
  }
}

constexpr std::array kServingViews = {ViewDef{
    .place = 178,
    .info = {.name = "serving",
             .title = "Serving",
             .note =
                 "Requests arrive as a Poisson process, as in MLPerf's server scenario; names are those of "
                 "vLLM's benchmark: TTFT is the time from arrival to the first token, TPOT the mean time of "
                 "each further token of a request. queue: until a slot was free. of slots: the share with a "
                 "text during decode steps. in limits: requests whose TTFT and TPOT are at most 5 times the "
                 "medians of requests served alone. Jain: (sum x)^2 / (n sum x^2) over users, 1 if all are "
                 "equal; tokens, and of service: with all requests at once, until the first user has all its "
                 "tokens; latency: seconds per new token. saturates at: with all requests at once.",
             .needs = "served requests (rooflm study serving, serve -o, bench-serve -o)"},
    .of_all = add_serving,
    .columns = [] { return columns_of(load_columns(), saturation_columns(), user_columns()); }}};

}  // namespace

std::span<const ViewDef> views_serving() { return kServingViews; }

}  // namespace rooflm::report
