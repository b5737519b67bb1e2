// The view of collectives of recorded programs: time, waiting for the last rank, bus bandwidth.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "report/collective_calls.h"
#include "report/view_def.h"

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
  [[nodiscard]] Cell mean(double sum_s) const { return sum_s / static_cast<double>(calls); }
  /// Waiting and transfer of all, or nothing.
  [[nodiscard]] bool is_known() const { return known == calls; }
};

void set_times(Row& row, const CallSums& sums) {
  row.set("time_s", sums.timed == sums.calls ? sums.mean(sums.time_s) : Cell());
  row.set("waiting_s", sums.is_known() ? sums.mean(sums.waiting_s) : Cell());
  row.set("transfer_s", sums.is_known() ? sums.mean(sums.transfer_s) : Cell());
}

Table kinds_table(const CollectiveCalls& all) {
  Table table{.columns = {{"op", "op"},
                          {"dtype", "dtype"},
                          {"ranks", "ranks"},
                          {"size", "size", Show::bytes, "byte"},
                          {"calls", "calls"},
                          {"calls_per_step", "per step", Show::brief},
                          {"time_s", "time", Show::seconds, "s"},
                          {"waiting_s", "waiting", Show::seconds, "s"},
                          {"transfer_s", "transfer", Show::seconds, "s"},
                          {"busbw", "bus byte/s", Show::si, "byte/s"}},
              .rows = {},
              .notes = {}};
  std::map<std::tuple<std::string, std::string, std::int64_t, double>, CallSums> rows;
  for (const CollectiveCall& call : all.calls) rows[{call.op, call.dtype, call.ranks, call.size()}].add(call);
  std::int64_t steps = 0;
  for (const std::int64_t of_run : all.steps) steps += of_run;
  for (const auto& [key, sums] : rows) {
    const auto& [op, dtype, ranks, size] = key;
    Row row;
    row.set("op", op);
    row.set("dtype", dtype.empty() ? Cell() : Cell(dtype));
    row.set("ranks", ranks > 0 ? Cell(ranks) : Cell());
    row.set("size", size);
    row.set("calls", sums.calls);
    row.set("calls_per_step", cell_of(ratio_of(static_cast<double>(sums.calls), static_cast<double>(steps))));
    set_times(row, sums);
    row.set("busbw", cell_of(ratio_of(sums.bus_bytes, sums.bus_s)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table ranks_table(const RecordSet& set, const CollectiveCalls& all) {
  Table table{.columns = {{"rank", "rank"},
                          {"record", "record"},
                          {"calls", "calls"},
                          {"time_s", "time of one", Show::seconds, "s"},
                          {"waiting_s", "waiting", Show::seconds, "s"},
                          {"transfer_s", "transfer", Show::seconds, "s"},
                          {"step_waiting_s", "waiting per step", Show::seconds, "s"},
                          {"last", "the last", Show::percent}},
              .rows = {},
              .notes = {}};
  std::map<std::pair<std::size_t, std::int64_t>, CallSums> rows;
  for (const CollectiveCall& call : all.calls) {
    if (!call.is_message) rows[{call.run, call.rank}].add(call);
  }
  for (const auto& [key, sums] : rows) {
    const auto& [run, rank] = key;
    Row row;
    row.set("rank", rank >= 0 ? Cell(rank) : Cell());
    row.set("record", set.files[set.runs[run].file].name);
    row.set("calls", sums.calls);
    set_times(row, sums);
    if (sums.is_known()) {
      row.set("step_waiting_s", cell_of(ratio_of(sums.waiting_s, static_cast<double>(all.steps[run]))));
      row.set("last", cell_of(ratio_of(static_cast<double>(sums.last), static_cast<double>(sums.calls))));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

void add_collectives(const RecordSet& set, const ViewOptions& /*options*/, View& view) {
  const CollectiveCalls all = collective_calls(set);
  if (all.calls.empty()) return;
  Table kinds = kinds_table(all);
  const auto alone = std::ranges::count(all.calls, false, &CollectiveCall::has_kernel);
  if (alone > 0) {
    kinds.notes.push_back(
        fmt::format("{} calls have no kernel in the record: nobody knows their time", alone));
  }
  const bool is_known =
      std::ranges::any_of(all.calls, [](const auto& call) { return call.waiting_s.has_value(); });
  if (!is_known && alone == 0) {
    kinds.notes.emplace_back(
        "waiting for the last rank needs the records of the others: rooflm report rank-0.rooflm "
        "rank-1.rooflm ...; "
        "without it bandwidth is that of waiting and transfer together");
  } else if (is_known && !all.has_common_clock) {
    kinds.notes.emplace_back(
        "the ranks ran on several machines: waiting is as exact as their times of day agree");
  }
  view.add("collectives", "Collectives", std::move(kinds));
  Table ranks = ranks_table(set, all);
  if (!ranks.rows.empty()) view.add("collectives.ranks", "Ranks", std::move(ranks));
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
         .needs = "collectives of NCCL (rooflm record)",
         .is_on_page = false},
    .of_run = nullptr,
    .of_all = add_collectives}};

}  // namespace

std::span<const ViewDef> views_collectives() { return kCollectiveViews; }

}  // namespace rooflm::report
