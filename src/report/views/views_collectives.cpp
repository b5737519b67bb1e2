// The view of collectives of recorded programs: time, waiting for the last rank, bus bandwidth.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "report/runs/collective_calls.h"
#include "report/tables/typed_columns.h"
#include "report/views/view_def.h"

namespace rooflm::report {
namespace {

/// Sums over calls.
struct CallSums {
  std::int64_t calls = 0, timed = 0, known = 0, last = 0;  ///< known: whose waiting is
  double time_s = 0, waiting_s = 0, transfer_s = 0;
  double bus_bytes = 0, bus_s = 0;  ///< of those whose number of ranks is known

  void add(const CollectiveCall& call) {
    ++calls;
    timed += call.has_kernel ? 1 : 0;
    time_s += call.time_s;
    transfer_s += call.transfer_s();
    if (call.waiting_s) {
      ++known;
      waiting_s += *call.waiting_s;
    }
    last += call.is_last ? 1 : 0;
    if (const auto factor = call.bus_factor()) {
      bus_bytes += *factor * call.size();
      bus_s += call.transfer_s();
    }
  }
  /// Waiting and transfer of all are known.
  [[nodiscard]] bool is_known() const { return known == calls; }
  [[nodiscard]] double mean(double sum_s) const { return sum_s / static_cast<double>(calls); }
  [[nodiscard]] std::optional<double> mean_time_s() const {
    return timed == calls ? std::optional(mean(time_s)) : std::nullopt;
  }
  [[nodiscard]] std::optional<double> mean_waiting_s() const {
    return is_known() ? std::optional(mean(waiting_s)) : std::nullopt;
  }
  [[nodiscard]] std::optional<double> mean_transfer_s() const {
    return is_known() ? std::optional(mean(transfer_s)) : std::nullopt;
  }
};

/// Calls of one kind and size.
struct CallKind {
  std::string op{}, dtype{};
  std::optional<std::int64_t> ranks{};
  double size = 0;
  CallSums sums{};
  std::int64_t steps = 0;
  [[nodiscard]] std::optional<double> per_step() const {
    return ratio_of(static_cast<double>(sums.calls), static_cast<double>(steps));
  }
};

const TypedColumns<CallKind>& kind_columns() {
  using Kind = CallKind;
  static const TypedColumns<CallKind> columns = {
      {"op", "op", &Kind::op},
      {"dtype", "dtype", [](const Kind& kind) { return known_text(kind.dtype); }},
      {"ranks", "ranks", &Kind::ranks},
      {"size", "size", &Kind::size, Show::bytes},
      {"calls", "calls", [](const Kind& kind) { return kind.sums.calls; }},
      {"calls_per_step", "per step", &Kind::per_step, Show::brief},
      {"time_s", "time", [](const Kind& kind) { return kind.sums.mean_time_s(); }, Show::seconds},
      {"waiting_s", "waiting", [](const Kind& kind) { return kind.sums.mean_waiting_s(); }, Show::seconds},
      {"transfer_s", "transfer", [](const Kind& kind) { return kind.sums.mean_transfer_s(); }, Show::seconds},
      {"busbw", "bus byte/s", [](const Kind& kind) { return ratio_of(kind.sums.bus_bytes, kind.sums.bus_s); },
       Show::si, "byte/s"}};
  return columns;
}

std::vector<CallKind> kinds_of(const CollectiveCalls& all) {
  std::map<std::tuple<std::string, std::string, std::int64_t, double>, CallSums> rows;
  for (const CollectiveCall& call : all.calls) rows[{call.op, call.dtype, call.ranks, call.size()}].add(call);
  const std::int64_t steps = std::accumulate(all.steps.begin(), all.steps.end(), std::int64_t{0});
  std::vector<CallKind> kinds;
  for (const auto& [key, sums] : rows) {
    const auto& [op, dtype, ranks, size] = key;
    kinds.push_back({.op = op,
                     .dtype = dtype,
                     .ranks = ranks > 0 ? std::optional(ranks) : std::nullopt,
                     .size = size,
                     .sums = sums,
                     .steps = steps});
  }
  return kinds;
}

/// Calls of one rank, messages left out.
struct RankCalls {
  std::optional<std::int64_t> rank{};
  std::string record{};
  CallSums sums{};
  std::int64_t steps = 0;
  [[nodiscard]] std::optional<double> step_waiting_s() const {
    return sums.is_known() ? ratio_of(sums.waiting_s, static_cast<double>(steps)) : std::nullopt;
  }
  [[nodiscard]] std::optional<double> last_share() const {
    return sums.is_known() ? ratio_of(static_cast<double>(sums.last), static_cast<double>(sums.calls))
                           : std::nullopt;
  }
};

const TypedColumns<RankCalls>& rank_columns() {
  using Rank = RankCalls;
  static const TypedColumns<RankCalls> columns = {
      {"rank", "rank", &Rank::rank},
      {"record", "record", &Rank::record},
      {"calls", "calls", [](const Rank& rank) { return rank.sums.calls; }},
      {"time_s", "time of one", [](const Rank& rank) { return rank.sums.mean_time_s(); }, Show::seconds},
      {"waiting_s", "waiting", [](const Rank& rank) { return rank.sums.mean_waiting_s(); }, Show::seconds},
      {"transfer_s", "transfer", [](const Rank& rank) { return rank.sums.mean_transfer_s(); }, Show::seconds},
      {"step_waiting_s", "waiting per step", &Rank::step_waiting_s, Show::seconds},
      {"last", "the last", &Rank::last_share, Show::percent}};
  return columns;
}

std::vector<RankCalls> ranks_of(const RecordSet& set, const CollectiveCalls& all) {
  std::map<std::pair<std::size_t, std::int64_t>, CallSums> rows;
  for (const CollectiveCall& call : all.calls) {
    if (!call.is_message) rows[{call.run, call.rank}].add(call);
  }
  std::vector<RankCalls> ranks;
  for (const auto& [key, sums] : rows) {
    const auto& [run, rank] = key;
    ranks.push_back({.rank = rank >= 0 ? std::optional(rank) : std::nullopt,
                     .record = set.files[set.runs[run].file].name,
                     .sums = sums,
                     .steps = all.steps[run]});
  }
  return ranks;
}

void add_collectives(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  const CollectiveCalls all = collective_calls(set);
  if (all.calls.empty()) return;
  Table kinds = kind_columns().table(kinds_of(all));
  const auto alone = std::ranges::count(all.calls, false, &CollectiveCall::has_kernel);
  if (alone > 0) {
    kinds.notes.push_back(fmt::format("{} calls have no kernel in the record: their time is unknown", alone));
  }
  const bool is_known =
      std::ranges::any_of(all.calls, [](const auto& call) { return call.waiting_s.has_value(); });
  if (!is_known && alone == 0) {
    kinds.notes.emplace_back(
        "to see the wait for the last rank, give the records of all ranks: rooflm report rank-0.rooflm "
        "rank-1.rooflm ...; "
        "without them, bandwidth covers waiting and transfer together");
  } else if (is_known && !all.has_common_clock) {
    kinds.notes.emplace_back(
        "the ranks ran on several machines: waiting is only as exact as their clocks agree");
  }
  view.add("collectives", "Collectives", std::move(kinds));
  view.add("collectives.ranks", "Ranks", rank_columns().table(ranks_of(set, all)));
}

constexpr std::array kCollectiveViews = {ViewDef{
    .place = 47,
    .info =
        {.name = "collectives",
         .title = "Collectives",
         .note =
             "Collectives and messages of NCCL: means of one call, of which waiting is the time from when a "
             "rank's kernel began until the last rank's did. A size is that of the whole, as nccl-tests "
             "counts; steps of warm-up are left out.",
         .needs = "collectives of NCCL (rooflm record)"},
    .of_all = add_collectives,
    .columns = [] { return columns_of(kind_columns(), rank_columns()); }}};

}  // namespace

std::span<const ViewDef> views_collectives() { return kCollectiveViews; }

}  // namespace rooflm::report
