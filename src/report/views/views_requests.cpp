// The views of single requests and of a server's batches: who waited, who ran, how long a step took.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/statistics.h"
#include "report/runs/serving.h"
#include "report/tables/typed_columns.h"
#include "report/views/view.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

/// A request or a batch with its load.
template <class T>
struct OfLoad {
  const ServedLoad* load = nullptr;
  std::int64_t number = 0;  ///< of the load in the record
  T what{};
};
using Request = OfLoad<RequestTimes>;
using Batch = OfLoad<ServedBatch>;

/// What is known of one that has a token.
template <class Figure>
auto once_begun(Figure figure) {
  return [figure](const Request& of) {
    const RequestTimes& request = of.what;
    return request.first_token_s < request.arrival_s ? std::nullopt
                                                     : std::optional<double>(std::invoke(figure, request));
  };
}

const TypedColumns<Request>& request_columns() {
  static const TypedColumns<Request> columns = {
      {"load", "load", &Request::number, Seen::when_differs},
      {"rate", "rate [req/s]", [](const Request& of) { return cell_of(of.load->rate); }, Seen::never},
      {"user", "user", [](const Request& of) { return of.what.user; }, Seen::when_differs},
      {"arrival_s", "arrival", [](const Request& of) { return of.what.arrival_s; }, Show::seconds},
      {"prompt_tokens", "prompt", [](const Request& of) { return whole(of.what.prompt_tokens); }},
      {"new_tokens", "new tokens", [](const Request& of) { return whole(of.what.new_tokens); }},
      {"queue_s", "queue", once_begun(&RequestTimes::queue_s), Show::seconds},
      {"ttft_s", "TTFT", once_begun(&RequestTimes::ttft_s), Show::seconds},
      {"tpot_s", "TPOT", once_begun(&RequestTimes::tpot_s), Show::seconds},
      {"latency_s", "latency", [](const Request& of) { return of.what.latency_s(); }, Show::seconds},
      {"guessed_tokens", "guessed",
       [](const Request& of) { return of.what.guessed_tokens > 0 ? whole(of.what.guessed_tokens) : Cell(); },
       Seen::when_known},
      {"accepted_share", "accepted",
       [](const Request& of) { return ratio_of(of.what.accepted_tokens, of.what.guessed_tokens); },
       Seen::when_known, Show::percent},
      {"finish", "ended by", [](const Request& of) { return known_text(of.what.finish); }, Seen::when_known}};
  return columns;
}

const TypedColumns<Batch>& batch_columns() {
  static const TypedColumns<Batch> columns = {
      {"load", "load", &Batch::number, Seen::when_differs},
      {"begin_s", "begin", [](const Batch& of) { return of.what.begin_s; }, Show::seconds},
      {"duration_s", "time", [](const Batch& of) { return of.what.end_s - of.what.begin_s; }, Show::seconds},
      {"steps", "steps", [](const Batch& of) { return whole(of.what.steps); }},
      {"texts", "texts", [](const Batch& of) { return whole(of.what.texts); }},
      {"prefill_tokens", "prompt tokens", [](const Batch& of) { return whole(of.what.prefill_tokens); }},
      {"decode_tokens", "new tokens", [](const Batch& of) { return whole(of.what.decode_tokens); }},
      {"step_s", "time of a step", [](const Batch& of) { return of.what.step_s(); }, Show::seconds}};
  return columns;
}

/// All of a load, by arrival.
std::vector<RequestTimes> all_of(const ServedLoad& load) {
  std::vector<RequestTimes> all = load.requests;
  all.insert(all.end(), load.failed.begin(), load.failed.end());
  std::ranges::stable_sort(all, {}, &RequestTimes::arrival_s);
  return all;
}

/// How much of [begin, end) lies between `from` and `to`.
double overlap(double begin, double end, double from, double to) {
  return std::max(0.0, std::min(end, to) - std::max(begin, from));
}

/// Requests that wait and that run, as means over parts of the time.
Chart timeline(const std::string& id, const std::string& title, const std::vector<RequestTimes>& requests) {
  constexpr int kParts = 200;
  Chart chart{
      .id = "requests.timeline" + id,
      .title = "Requests over time" + title,
      .note = "Means over 200 equal parts of the time. waiting: until a slot was free, or at the client.",
      .kind = ChartKind::stacked,
      .x = {.title = "time", .unit = "s"},
      .y = {.title = "requests"}};
  const double begin_s = requests.front().arrival_s;
  const double end_s = std::ranges::max(requests, {}, &RequestTimes::finish_s).finish_s;
  if (!(end_s > begin_s)) return chart;
  const double part_s = (end_s - begin_s) / kParts;
  std::array<double, kParts> waiting{}, running{};
  const auto add = [&](std::array<double, kParts>& sums, double from, double to) {
    const auto part_at = [&](double at) {
      return std::clamp(static_cast<int>((at - begin_s) / part_s), 0, kParts - 1);
    };
    for (int i = part_at(from); i <= part_at(to); ++i)
      sums.at(static_cast<std::size_t>(i)) +=
          overlap(from, to, begin_s + i * part_s, begin_s + (i + 1) * part_s);
  };
  for (const RequestTimes& request : requests) {
    const bool was_admitted = request.admitted_s >= request.arrival_s;
    const double admitted_s = was_admitted ? request.admitted_s : request.finish_s;
    add(waiting, request.arrival_s, admitted_s);
    if (was_admitted) add(running, admitted_s, request.finish_s);
  }
  for (const auto& [name, sums] : {std::pair{"running", &running}, {"waiting", &waiting}}) {
    Series& series = series_named(chart, name);
    for (int i = 0; i < kParts; ++i)
      series.points.push_back({.x = (i + 0.5) * part_s, .y = sums->at(static_cast<std::size_t>(i)) / part_s});
  }
  return chart;
}

/// Of a server: what arrived in each part of the time, and how long that took.
Chart latency_over_rate(const std::string& id, const std::string& title, const ServedLoad& load) {
  constexpr int kParts = 30;
  Chart chart{
      .id = "requests.rate" + id,
      .title = "Latency against arrival rate" + title,
      .note = "Each mark: the median of the requests that arrived in one of 30 equal parts of the time.",
      .kind = ChartKind::points,
      .x = {.title = "requests that arrive per second", .unit = "req/s"},
      .y = {.title = "latency", .unit = "s", .is_log = true}};
  if (load.requests.empty()) return chart;
  const auto [first, last] = std::ranges::minmax(load.requests, {}, &RequestTimes::arrival_s);
  const double part_s = (last.arrival_s - first.arrival_s) / kParts;
  if (!(part_s > 0)) return chart;
  std::array<std::vector<double>, kParts> ttft, latency;
  for (const RequestTimes& request : load.requests) {
    const auto part = static_cast<std::size_t>(
        std::clamp(static_cast<int>((request.arrival_s - first.arrival_s) / part_s), 0, kParts - 1));
    ttft.at(part).push_back(request.ttft_s());
    latency.at(part).push_back(request.latency_s());
  }
  for (const auto& [name, values] : {std::pair{"TTFT", &ttft}, {"whole answer", &latency}}) {
    for (const std::vector<double>& part : *values) {
      if (part.empty()) continue;
      series_named(chart, name)
          .points.push_back({.x = static_cast<double>(part.size()) / part_s, .y = core::median(part)});
    }
  }
  return chart;
}

Chart step_times(const std::string& id, const std::string& title, const ServedLoad& load) {
  constexpr std::size_t kMost = 2000;
  Chart chart{.id = "batches.steps" + id,
              .title = "Step time against number of texts" + title,
              .note = "Steps that read no prompt; one after another with the same texts are one mark.",
              .kind = ChartKind::points,
              .x = {.title = "texts"},
              .y = {.title = "time of a step", .unit = "s"}};
  const std::size_t every = load.batches.size() / kMost + 1;
  for (std::size_t i = 0; i < load.batches.size(); i += every) {
    const ServedBatch& batch = load.batches[i];
    if (batch.prefill_tokens == 0)
      series_named(chart, "step").points.push_back({.x = batch.texts, .y = batch.step_s()});
  }
  return chart;
}

/// Calls `of_load` with each load of the set, its number and what tells its tables and charts apart.
template <class OfLoadCall>
void for_loads(const RecordSet& set, OfLoadCall of_load) {
  for (std::size_t file = 0; file < set.files.size(); ++file) {
    const std::vector<ServedLoad> loads = loads_of(set.files[file]);
    for (std::size_t i = 0; i < loads.size(); ++i) {
      std::string id = set.files.size() == 1 ? "" : fmt::format(".{}", file + 1);
      std::string title;
      if (loads.size() > 1) {
        id += fmt::format(".load{}", i + 1);
        title = fmt::format(", load {}", i + 1);
      }
      of_load(loads[i], static_cast<std::int64_t>(i + 1), id, title);
    }
  }
}

void add_requests(const RecordSet& set, const ViewOptions& options, View& view) {
  for_loads(
      set, [&](const ServedLoad& load, std::int64_t number, const std::string& id, const std::string& title) {
        const std::vector<RequestTimes> all = all_of(load);
        std::vector<Request> rows;
        for (const RequestTimes& request : all)
          rows.push_back({.load = &load, .number = number, .what = request});
        view.add("requests" + id, "Requests" + title, request_columns().table(rows, options.top, "requests"));
        view.add(timeline(id, title, all));
        if (load.is_observed) view.add(latency_over_rate(id, title, load));
      });
}

void add_batches(const RecordSet& set, const ViewOptions& options, View& view) {
  for_loads(
      set, [&](const ServedLoad& load, std::int64_t number, const std::string& id, const std::string& title) {
        std::vector<Batch> rows;
        for (const ServedBatch& batch : load.batches)
          rows.push_back({.load = &load, .number = number, .what = batch});
        view.add("batches" + id, "Batches" + title, batch_columns().table(rows, options.top, "batches"));
        view.add(step_times(id, title, load));
      });
}

constexpr std::array kRequestViews = {
    ViewDef{
        .place = 178,
        .info = {.name = "requests",
                 .title = "Requests",
                 .note =
                     "Each request from its arrival to its last token; times count from the server's start, "
                     "or from the start of a client's load. queue: until a slot was free, or until the "
                     "client sent it. ended by: stop (the text's own end, or a stop word), length, "
                     "cancelled (the client left, or the server stopped), error.",
                 .needs = "served requests (rooflm serve -o, bench-serve -o, study serving)"},
        .of_all = add_requests,
        .columns = [] { return columns_of(request_columns()); }},
    ViewDef{
        .place = 178,
        .info = {.name = "batches",
                 .title = "Batches",
                 .note =
                     "What a server's engine ran: prompts as they were read, and steps that add a token to "
                     "each text. Steps with the same number of texts that follow each other are one row, of "
                     "at most a second.",
                 .needs = "a server's record (rooflm serve -o)"},
        .of_all = add_batches,
        .columns = [] { return columns_of(batch_columns()); }}};

}  // namespace

std::span<const ViewDef> views_requests() { return kRequestViews; }

}  // namespace rooflm::report
