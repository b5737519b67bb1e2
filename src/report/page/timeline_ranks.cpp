// The timelines of several ranks as one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/stretches.h"
#include "core/units.h"
#include "report/page/timeline_builder.h"
#include "report/runs/job_ranks.h"

namespace rooflm::report {
namespace {

using core::covered;
using core::outside;
using core::Stretch;

/// Steps of a rank by their starts on the first one's clock.
class StepsByTime {
 public:
  StepsByTime(const TimelineBuilder::Spans& spans, std::int64_t offset_ns) {
    for (const auto& [step, span] : spans)
      steps_.push_back({span.start_ns + offset_ns, span.end_ns + offset_ns, 0, step});
    std::ranges::stable_sort(steps_, {}, &Step::start_ns);
    std::int64_t latest_ns = std::numeric_limits<std::int64_t>::min();
    for (Step& step : steps_) latest_ns = step.latest_ns = std::max(latest_ns, step.end_ns);
  }

  /// The step that shares most time with the span; nothing where none shares any.
  [[nodiscard]] std::optional<std::int64_t> beside(const TimelineBuilder::Span& span) const {
    std::int64_t longest = 0;
    std::optional<std::int64_t> found;
    auto step = std::ranges::lower_bound(steps_, span.end_ns, {}, &Step::start_ns);
    while (step != steps_.begin() && (--step)->latest_ns > span.start_ns) {
      const std::int64_t shared =
          std::min(span.end_ns, step->end_ns) - std::max(span.start_ns, step->start_ns);
      if (shared <= longest) continue;
      longest = shared;
      found = step->step;
    }
    return found;
  }

 private:
  struct Step {
    std::int64_t start_ns = 0, end_ns = 0, latest_ns = 0;  ///< latest: end of it and of those before it
    std::int64_t step = 0;
  };
  std::vector<Step> steps_;
};

/// Of each step of the first rank the steps that the others were at: those that share most time with it.
/// Without those in which one of them was at none.
std::map<std::int64_t, std::vector<std::int64_t>> common_steps(const std::vector<RankRun>& ranks,
                                                               std::size_t most_events) {
  std::vector<StepsByTime> others;
  for (std::size_t i = 1; i < ranks.size(); ++i)
    others.emplace_back(TimelineBuilder(*ranks[i].run, most_events).spans(), ranks[i].offset_ns);
  std::map<std::int64_t, std::vector<std::int64_t>> common;
  for (const auto& [step, span] : TimelineBuilder(*ranks.front().run, most_events).spans()) {
    std::vector<std::int64_t> partners{step};
    for (const StepsByTime& other : others) {
      if (const auto partner = other.beside(span)) partners.push_back(*partner);
    }
    if (partners.size() == ranks.size()) common[step] = std::move(partners);
  }
  return common;
}

/// Joins timelines, the first one's first.
class RankJoiner {
 public:
  RankJoiner(const std::vector<RankRun>& ranks, const std::vector<RankWait>& waits, std::size_t most_events)
      : ranks_(ranks), waits_(waits), most_events_(most_events) {}

  Timeline join() && {
    const auto common = common_steps(ranks_, most_events_);
    const bool has_steps = !TimelineBuilder(*ranks_.front().run, most_events_).spans().empty();
    if (has_steps && common.empty()) {
      Timeline alone = timeline_of(*ranks_.front().run, most_events_);
      alone.notes.emplace_back(
          "No step of this rank was recorded by all ranks at the same time, so the other ranks are not "
          "shown.");
      return alone;
    }
    std::vector<std::int64_t> steps;  // of the first that are shown
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      TimelineBuilder builder(
          *ranks_[i].run, i == 0 ? most_events_ / ranks_.size() : std::numeric_limits<std::size_t>::max());
      std::set<std::int64_t> allowed;
      if (i == 0) {
        for (const auto& [step, partners] : common) allowed.insert(step);
      } else {
        for (const std::int64_t step : steps) allowed.insert(common.at(step)[i]);
      }
      if (has_steps) builder.allow(allowed);
      Timeline one = std::move(builder).build();
      if (i == 0) {
        for (const TimelineStep& step : one.steps) steps.push_back(step.step);
      }
      std::map<std::int64_t, std::size_t> places;  // of its steps among those that are shown
      for (std::size_t place = 0; place < steps.size(); ++place) places[common.at(steps[place])[i]] = place;
      take(std::move(one), ranks_[i], places, i == 0 || shares_ops(*ranks_[i].run));
    }
    finish();
    return std::move(joined_);
  }

 private:
  /// Whether the numbers of its ops are those of the first rank's.
  [[nodiscard]] bool shares_ops(const RunData& run) const {
    const auto is_same = [](const TimedOp& a, const TimedOp& b) {
      return a.op.op == b.op.op && a.op.kind == b.op.kind && a.op.scope == b.op.scope &&
             a.op.phase == b.op.phase;
    };
    return std::ranges::equal(run.ops, ranks_.front().run->ops, is_same);
  }

  template <class Value, class Key>
  static std::size_t place_in(std::vector<Value>& all, std::map<Key, std::size_t>& places, const Key& key,
                              const Value& value) {
    const auto [entry, is_new] = places.try_emplace(key, all.size());
    if (is_new) all.push_back(value);
    return entry->second;
  }

  std::size_t name_of(const TimelineName& name) {
    return place_in(joined_.names, names_, std::pair(name.kind, name.text), name);
  }
  std::size_t class_of(const std::string& name) { return place_in(joined_.classes, classes_, name, name); }

  /// Adds the lanes of a rank, its exposed communication below what its device did.
  std::vector<std::size_t> take_lanes(const Timeline& one, const RankRun& rank, std::size_t& exposed) {
    std::vector<std::size_t> places(one.lanes.size());
    const auto add = [&](bool hosts) {
      for (std::size_t i = 0; i < one.lanes.size(); ++i) {
        if ((one.lanes[i].kind == "host") != hosts) continue;
        places[i] = joined_.lanes.size();
        joined_.lanes.push_back(one.lanes[i]);
        joined_.lanes.back().rank = rank.rank;
      }
    };
    add(false);
    exposed = joined_.lanes.size();
    joined_.lanes.push_back(
        {.name = "exposed communication", .kind = "exposed", .device = {}, .rank = rank.rank});
    add(true);
    return places;
  }

  void take(Timeline one, const RankRun& rank, const std::map<std::int64_t, std::size_t>& places,
            bool has_ops) {
    const std::int64_t shift_ns = one.origin_ns + rank.offset_ns;  // its zero on the first one's clock
    std::size_t exposed = 0;
    const std::vector<std::size_t> lanes = take_lanes(one, rank, exposed);
    const std::size_t before = joined_.events.size();
    const std::size_t launches = joined_.launches.size();
    joined_.launches.insert(joined_.launches.end(), one.launches.begin(), one.launches.end());
    std::vector<std::optional<std::size_t>> steps;
    for (TimelineStep step : one.steps) {
      const auto place = places.find(step.step);
      steps.push_back(place == places.end() ? std::nullopt : std::optional(place->second));
      if (!steps.back()) continue;
      step.start_ns += shift_ns;
      step.end_ns += shift_ns;
      if (before == 0) {
        joined_.steps.push_back(step);
        continue;
      }
      TimelineStep& whole = joined_.steps[*steps.back()];
      whole.start_ns = std::min(whole.start_ns, step.start_ns);
      whole.end_ns = std::max(whole.end_ns, step.end_ns);
    }
    for (TimelineEvent event : one.events) {
      event.start_ns += shift_ns;
      event.end_ns += shift_ns;
      event.lane = lanes[event.lane];
      event.name = name_of(one.names[event.name]);
      event.event_class = class_of(one.classes[event.event_class]);
      if (event.step) event.step = steps[*event.step];
      if (!has_ops) event.op.reset();
      if (event.launch) *event.launch += launches;
      if (event.cause) *event.cause += before;
      joined_.events.push_back(event);
    }
    if (before == 0) {
      joined_.source = one.source;
      joined_.notes = std::move(one.notes);
      joined_.shown = one.shown;
      for (TimelineSeries& series : one.series) {
        for (std::int64_t& time_ns : series.time_ns) time_ns += shift_ns;
        series.device =
            fmt::format("rank {}{}{}", rank.rank, series.device.empty() ? "" : ", ", series.device);
        joined_.series.push_back(std::move(series));
      }
    }
    add_exposed(rank, before, exposed);
  }

  /// Collectives and messages of the rank that began at `from`, as far as nothing else ran on it.
  void add_exposed(const RankRun& rank, std::size_t from, std::size_t lane) {
    std::vector<Stretch> talking;
    std::vector<Stretch> working;
    for (std::size_t i = from; i < joined_.events.size(); ++i) {
      const TimelineEvent& event = joined_.events[i];
      if (!is_work(joined_.names[event.name].kind) || joined_.lanes[event.lane].kind != "device") continue;
      const bool talks = joined_.classes[event.event_class] == "collective";
      (talks ? talking : working).emplace_back(event.start_ns, event.end_ns);
    }
    std::vector<Stretch> waits;
    for (const RankWait& wait : waits_) {
      if (wait.rank == rank.rank) waits.emplace_back(wait.start_ns, wait.end_ns);
    }
    const std::vector<Stretch> exposed = outside(covered(std::move(talking)), covered(std::move(working)));
    const std::vector<Stretch> transfer = outside(exposed, covered(std::move(waits)));
    const std::vector<Stretch> waiting = outside(exposed, transfer);
    const auto add = [&](const std::vector<Stretch>& all, const char* text, const char* of_class) {
      for (const auto& [start, end] : all) {
        TimelineEvent event;
        event.start_ns = start;
        event.end_ns = end;
        event.lane = lane;
        event.name = name_of({.kind = "exposed", .text = text, .short_text = text});
        event.event_class = class_of(of_class);
        joined_.events.push_back(event);
      }
    };
    add(transfer, "exposed transfer", "exposed: transfer");
    add(waiting, "waiting for other ranks", "exposed: waiting");
    exposed_.push_back({rank.rank, transfer, waiting});
  }

  void add_notes() {
    const std::string kept = ranks_.front().run->text("rank_steps");
    if (!kept.empty()) joined_.notes.push_back(kept);
    if (joined_.steps.empty()) return;
    constexpr std::size_t kMostRanks = 16;
    const TimelineStep& step = joined_.steps[joined_.shown];
    std::vector<std::string> texts;
    for (const auto& [rank, transfer, waiting] : exposed_) {
      const auto seconds = [&](const std::vector<Stretch>& all) {
        return core::format_seconds(
            static_cast<double>(core::length_within(all, {step.start_ns, step.end_ns})) * 1e-9);
      };
      texts.push_back(fmt::format("rank {} {} and {}", rank, seconds(transfer), seconds(waiting)));
    }
    const std::size_t more = texts.size() > kMostRanks ? texts.size() - kMostRanks : 0;
    texts.resize(texts.size() - more);
    joined_.notes.push_back(
        fmt::format("Exposed communication in step {}, transfer and waiting for other ranks: {}{}.",
                    step.step, fmt::join(texts, "; "), more > 0 ? fmt::format("; and {} more", more) : ""));
  }

  /// In order of time, which begins with the first event.
  void finish() {
    add_notes();
    std::vector<std::size_t> order(joined_.events.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, [&](std::size_t i) {
      return std::pair(joined_.events[i].start_ns, -joined_.events[i].end_ns);
    });
    std::vector<std::size_t> place(order.size());
    std::vector<TimelineEvent> events;
    events.reserve(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
      events.push_back(joined_.events[order[i]]);
    }
    joined_.origin_ns = events.empty() ? 0 : events.front().start_ns;
    for (TimelineEvent& event : events) {
      event.start_ns -= joined_.origin_ns;
      event.end_ns -= joined_.origin_ns;
      if (event.cause) event.cause = place[*event.cause];
    }
    joined_.events = std::move(events);
    for (TimelineStep& step : joined_.steps) {
      step.start_ns -= joined_.origin_ns;
      step.end_ns -= joined_.origin_ns;
    }
    for (TimelineSeries& series : joined_.series) {
      for (std::int64_t& time_ns : series.time_ns) time_ns -= joined_.origin_ns;
    }
  }

  struct Exposed {
    int rank = 0;
    std::vector<Stretch> transfer, waiting;
  };

  const std::vector<RankRun>& ranks_;
  const std::vector<RankWait>& waits_;
  std::size_t most_events_;
  Timeline joined_;
  std::map<std::pair<std::string, std::string>, std::size_t> names_;
  std::map<std::string, std::size_t> classes_;
  std::vector<Exposed> exposed_;
};

}  // namespace

Timeline timeline_of_ranks(const std::vector<RankRun>& ranks, const std::vector<RankWait>& waits,
                           std::size_t most_events) {
  return RankJoiner(ranks, waits, most_events).join();
}

}  // namespace rooflm::report
