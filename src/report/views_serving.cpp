// The view of requests that arrive while others are served: throughput, latency and fairness over the rate.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/ratio.h"
#include "core/statistics.h"
#include "report/serving.h"
#include "report/view.h"
#include "report/view_def.h"

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

/// Median, 90th and 99th percentile: NAME_median_s, NAME_p90_s, NAME_p99_s.
void set_percentiles(Row& row, const std::string& name, const std::vector<double>& values) {
  const auto set = [&](const char* which, double q) {
    row.set(fmt::format("{}_{}_s", name, which), values.empty() ? Cell() : Cell(core::quantile(values, q)));
  };
  set("median", 0.5);
  set("p90", 0.9);
  set("p99", 0.99);
}

/// What tells a load from others.
void set_names(Row& row, const ServedLoad& load) {
  row.set("model", load.model);
  row.set("dtype", load.dtype);
  row.set("device", load.device);
  row.set("engine", load.engine);
  row.set("slots", load.slots);
  row.set("schedule", load.schedule);
  row.set("configuration", load.configuration);
}
void set_rate(Row& row, const ServedLoad& load) {
  row.set("rate", load.rate ? Cell(*load.rate) : Cell("all at once"));
}

std::optional<double> fairness_of(const std::vector<UserShare>& users, double UserShare::*share) {
  std::vector<double> shares;
  for (const UserShare& user : users) shares.push_back(user.*share);
  return jain_index(shares);
}

Row load_row(const ServedLoad& load) {
  Row row;
  set_names(row, load);
  set_rate(row, load);
  const double duration_s = load.duration_s();
  row.set("requests", static_cast<std::int64_t>(load.requests.size()));
  row.set("duration_s", duration_s);
  row.set("requests_per_s", cell_of(load.requests_per_s()));
  row.set("tokens_per_s", cell_of(ratio_of(load.tokens(), duration_s)));
  set_percentiles(row, "ttft", values_of(load, ttft_of));
  set_percentiles(row, "tpot", values_of(load, tpot_of));
  set_percentiles(row, "queue", values_of(load, queue_of));
  set_percentiles(row, "e2el", values_of(load, latency_of));
  row.set("batch_share", cell_of(load.batch_share()));
  row.set("prefill_share", cell_of(ratio_of(load.prefill_s, duration_s)));
  row.set("decode_share", cell_of(ratio_of(load.decode_s, duration_s)));
  row.set("slo_share", load.slo_share());
  const std::vector<UserShare> users = users_of(load);
  // At a rate below saturation users do not compete: theirs would be the shares that they asked for.
  row.set("fairness_served", load.rate ? Cell() : cell_of(fairness_of(users, &UserShare::served)));
  row.set("fairness_latency", cell_of(fairness_of(users, &UserShare::s_per_token)));
  return row;
}

/// Of several configurations, a column that names them comes first.
void name_configurations(const std::vector<ServedLoad>& loads, Table& table) {
  const bool differ = std::ranges::any_of(
      loads, [&](const ServedLoad& load) { return load.configuration != loads.front().configuration; });
  if (differ) table.columns.insert(table.columns.begin(), {"configuration", "configuration"});
}

Table load_table(const std::vector<ServedLoad>& loads) {
  Table table{.columns = {{"schedule", "schedule"},
                          {"rate", "rate [req/s]", Show::brief},
                          {"requests", "requests"},
                          {"requests_per_s", "req/s", Show::brief, "req/s"},
                          {"tokens_per_s", "tok/s", Show::si, "tok/s"},
                          {"ttft_median_s", "TTFT median", Show::seconds, "s"},
                          {"ttft_p90_s", "p90", Show::seconds, "s"},
                          {"ttft_p99_s", "p99", Show::seconds, "s"},
                          {"tpot_median_s", "TPOT median", Show::seconds, "s"},
                          {"tpot_p90_s", "p90", Show::seconds, "s"},
                          {"tpot_p99_s", "p99", Show::seconds, "s"},
                          {"queue_median_s", "queue median", Show::seconds, "s"},
                          {"queue_p99_s", "p99", Show::seconds, "s"},
                          {"batch_share", "of slots", Show::percent},
                          {"slo_share", "in limits", Show::percent},
                          {"fairness_served", "Jain, tokens", Show::fixed3},
                          {"fairness_latency", "Jain, latency", Show::fixed3}},
              .rows = {},
              .notes = {}};
  name_configurations(loads, table);
  for (const ServedLoad& load : loads) table.rows.push_back(load_row(load));
  return table;
}

Table saturation_table(const std::vector<ServedLoad>& loads) {
  Table table{.columns = {{"model", "model"},
                          {"dtype", "dtype"},
                          {"slots", "slots"},
                          {"schedule", "schedule"},
                          {"saturation_req_per_s", "saturates at", Show::brief, "req/s"},
                          {"saturation_tokens_per_s", "tok/s", Show::si, "tok/s"},
                          {"rate_in_limits", "rate in limits", Show::brief, "req/s"},
                          {"ttft_limit_s", "TTFT limit", Show::seconds, "s"},
                          {"tpot_limit_s", "TPOT limit", Show::seconds, "s"}},
              .rows = {},
              .notes = {}};
  name_configurations(loads, table);
  for (const Saturation& of : saturations(loads)) {
    const ServedLoad& any = *of.loads.front();
    Row row;
    set_names(row, any);
    if (of.all_at_once != nullptr) {
      row.set("saturation_req_per_s", cell_of(of.all_at_once->requests_per_s()));
      row.set("saturation_tokens_per_s",
              cell_of(ratio_of(of.all_at_once->tokens(), of.all_at_once->duration_s())));
    }
    row.set("rate_in_limits", of.highest == nullptr ? Cell() : cell_of(of.highest->rate));
    row.set("ttft_limit_s", any.ttft_limit_s);
    row.set("tpot_limit_s", any.tpot_limit_s);
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table user_table(const std::vector<ServedLoad>& loads) {
  Table table{.columns = {{"schedule", "schedule"},
                          {"rate", "rate [req/s]", Show::brief},
                          {"user", "user"},
                          {"requests", "requests"},
                          {"tokens", "tokens"},
                          {"served_share", "of service", Show::percent},
                          {"ttft_median_s", "TTFT median", Show::seconds, "s"},
                          {"s_per_token", "latency per token", Show::seconds, "s"}},
              .rows = {},
              .notes = {}};
  name_configurations(loads, table);
  for (const ServedLoad& load : loads) {
    const std::vector<UserShare> users = users_of(load);
    if (users.size() < 2) continue;
    double served = 0;
    for (const UserShare& user : users) served += user.served;
    for (const UserShare& user : users) {
      Row row;
      set_names(row, load);
      set_rate(row, load);
      row.set("user", user.user);
      row.set("requests", user.requests);
      row.set("tokens", whole(user.tokens));
      row.set("served_share", load.rate ? Cell() : cell_of(ratio_of(user.served, served)));
      row.set("ttft_median_s", user.ttft_s);
      row.set("s_per_token", user.s_per_token);
      table.rows.push_back(std::move(row));
    }
  }
  return table;
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
    view.add("serving" + of, "Served loads", load_table(loads));
    view.add("serving.saturation" + of, "Saturation", saturation_table(loads));
    view.add("serving.users" + of, "Users", user_table(loads));
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
             .needs = "served requests (rooflm study serving)",
             .is_on_page = false},
    .of_run = nullptr,
    .of_all = add_serving}};

}  // namespace

std::span<const ViewDef> views_serving() { return kServingViews; }

}  // namespace rooflm::report
