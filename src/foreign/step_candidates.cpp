// What could be the steps of a program, and which of it is.
#include "foreign/step_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>

#include "core/statistics.h"
#include "foreign/repeats.h"
#include "foreign/step_ranges.h"

namespace rooflm::foreign {
namespace {

/// Something that repeats itself: a kernel, or all that one launch of a graph ran.
struct Unit {
  std::int64_t name = 0;
  std::size_t first = 0, last = 0;  ///< places in the work
};

/// Kernels of the first device.
std::vector<Unit> kernel_units(ForeignRun& run, const std::vector<Launched>& work) {
  std::vector<Unit> units;
  std::string device;
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (!work[i].is_kernel) continue;
    const std::string& own = run.lane(run.activities()[work[i].activity].lane).device;
    if (units.empty() || own < device) {
      device = own;
      units.clear();
    }
    if (own == device) units.push_back({work[i].name, i, i});
  }
  return units;
}

/// Launches of graphs; those that ran the same have one name.
std::vector<Unit> graph_units(const std::vector<Launched>& work) {
  std::vector<Unit> units;
  std::map<std::vector<std::int64_t>, std::int64_t> names;
  for (std::size_t i = 0; i < work.size();) {
    std::size_t end = i + 1;
    if (work[i].is_of_graph) {
      std::vector<std::int64_t> parts{work[i].name};
      for (; end < work.size() && work[end].asked_ns == work[i].asked_ns; ++end)
        parts.push_back(work[end].name);
      std::ranges::sort(parts);
      const auto known = names.try_emplace(std::move(parts), static_cast<std::int64_t>(names.size())).first;
      units.push_back({known->second, i, end - 1});
    }
    i = end;
  }
  return units;
}

/// Where steps that repeat themselves are best cut: where the device waits longest, the host does not run
/// ahead. Where they are all there is, nothing was cut.
std::size_t best_cut(const std::vector<Launched>& work, const std::vector<Unit>& units,
                     const Repeats& repeats) {
  if (repeats.begin == 0 && repeats.count * repeats.length == units.size()) return 0;
  std::vector<std::int64_t> waits_ns(repeats.length);
  std::int64_t done_ns = work[units.front().first].start_ns;
  for (std::size_t i = 0; i < repeats.begin + repeats.count * repeats.length; ++i) {
    const std::int64_t wait_ns = work[units[i].first].start_ns - done_ns;
    if (i >= repeats.begin && wait_ns > 0) waits_ns[(i - repeats.begin) % repeats.length] += wait_ns;
    for (std::size_t at = units[i].first; at <= units[i].last; ++at)
      done_ns = std::max(done_ns, work[at].end_ns);
  }
  return static_cast<std::size_t>(std::ranges::max_element(waits_ns) - waits_ns.begin());
}

/// From a unit to before another.
using Stretch = std::pair<std::size_t, std::size_t>;

/// Wherever the period stands. What lies between two of them is part of the first where it is less than half
/// a period (a loss that is printed), a step of its own where it is about one, and otherwise none.
std::vector<Stretch> stretches_of(const std::vector<Unit>& units, const Repeats& repeats, std::size_t cut) {
  const std::size_t length = repeats.length;
  const auto period = units.begin() + static_cast<std::ptrdiff_t>(repeats.begin + cut);
  std::vector<Stretch> found;
  for (std::size_t at = 0; at + length <= units.size();) {
    const auto here = units.begin() + static_cast<std::ptrdiff_t>(at);
    const bool is_here = std::equal(here, here + static_cast<std::ptrdiff_t>(length), period,
                                    [](const Unit& a, const Unit& b) { return a.name == b.name; });
    if (!is_here) {
      ++at;
      continue;
    }
    if (!found.empty() && found.back().second < at) {
      const std::size_t between = at - found.back().second;
      if (2 * between < length) {
        found.back().second = at;
      } else if (2 * between <= 3 * length) {
        found.emplace_back(found.back().second, at);
      }
    }
    found.emplace_back(at, at + length);
    at += length;
  }
  return found;
}

/// Whether what repeats looks like the layers of one step: several are of one launch, a graph's, or there is
/// other work before them and other work after them, such as an embedding and a loss.
bool are_layers(ForeignRun& run, const std::vector<Launched>& work, const std::vector<Unit>& units,
                const std::vector<Stretch>& stretches) {
  const auto launch_of = [&](const Stretch& one) {
    return run.activities()[work[units[one.first].first].activity].correlation;
  };
  std::size_t of_one_launch = 0;
  for (std::size_t i = 1; i < stretches.size(); ++i) {
    const auto launch = launch_of(stretches[i]);
    if (launch && launch == launch_of(stretches[i - 1])) ++of_one_launch;
  }
  if (2 * of_one_launch > stretches.size()) return true;
  std::set<std::int64_t> inside;
  for (const auto& [begin, end] : stretches) {
    for (std::size_t i = begin; i < end; ++i) inside.insert(units[i].name);
  }
  const auto has_other = [&](auto begin, auto end) {
    return std::any_of(begin, end, [&](const Unit& unit) { return !inside.contains(unit.name); });
  };
  const auto first = units.begin() + static_cast<std::ptrdiff_t>(stretches.front().first);
  const auto last = units.begin() + static_cast<std::ptrdiff_t>(stretches.back().second);
  return has_other(units.begin(), first) && has_other(last, units.end());
}

std::optional<Candidate> repeated(ForeignRun& run, const std::vector<Launched>& work,
                                  const std::vector<Unit>& units, std::string what, std::size_t shortest) {
  std::vector<std::int64_t> names;
  for (const Unit& unit : units) names.push_back(unit.name);
  const auto repeats = find_repeats(names, {.least = 4, .shortest = shortest});
  if (!repeats) return std::nullopt;
  constexpr double kLessSure = 0.75;
  Candidate made{.what = std::move(what), .weight = kLessSure};
  const std::vector<Stretch> stretches = stretches_of(units, *repeats, best_cut(work, units, *repeats));
  made.may_be_layers =
      run.steps_by.kind == StepsBy::Kind::automatic && are_layers(run, work, units, stretches);
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    const auto [begin, end] = stretches[i];
    const bool has_next = i + 1 < stretches.size() && stretches[i + 1].first == end;
    const std::size_t first = units[begin].first;
    const std::size_t last = has_next ? units[end].first : units[end - 1].last + 1;
    made.steps.push_back({.number = static_cast<std::int64_t>(i),
                          .start_ns = work[first].asked_ns,
                          .end_ns = std::max(work[first].asked_ns,
                                             has_next ? work[last].asked_ns : work[last - 1].asked_until_ns),
                          .lane = work[first].lane,
                          .work = std::pair(first, last)});
  }
  return made;
}

/// 2 |A and B| / (|A| + |B|) of two sorted lists.
double alike(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  std::vector<std::int64_t> both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return a.empty() && b.empty()
             ? 1
             : 2 * static_cast<double>(both.size()) / static_cast<double>(a.size() + b.size());
}

void judge(ForeignRun& run, const std::vector<Launched>& work, Candidate& candidate) {
  std::vector<std::vector<std::int64_t>> names(candidate.steps.size());
  double all_ns = 0;
  double steps_ns = 0;
  double between_ns = 0;  // of no step, since the last one
  double window_ns = 0;
  const auto places = steps_of_work(run, work, candidate.steps);
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (work[i].is_from_before) continue;  // no range of the trace can hold it
    const auto ns = static_cast<double>(work[i].kernel_ns);
    all_ns += ns;
    if (!places[i]) {
      between_ns += ns;
      continue;
    }
    window_ns += ns + (steps_ns > 0 ? between_ns : 0);
    between_ns = 0;
    steps_ns += ns;
    if (work[i].is_kernel) names[*places[i]].push_back(work[i].name);
  }
  candidate.share = all_ns > 0 ? steps_ns / all_ns : 0;
  candidate.window_share = window_ns > 0 ? steps_ns / window_ns : 0;
  std::vector<double> counts, likeness;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::ranges::sort(names[i]);
    counts.push_back(static_cast<double>(names[i].size()));
    if (i > 0) likeness.push_back(alike(names[i - 1], names[i]));
  }
  candidate.kernels = counts.empty() ? 0 : static_cast<std::size_t>(core::median(counts));
  candidate.regularity = likeness.empty() ? 1 : core::median(likeness);
}

/// What covers little of the device's time is no step, and an operator that runs one kernel is none. Names
/// that say it need cover less: warm-up or evaluation may be long.
bool is_credible(const Candidate& candidate) {
  constexpr double kLeastShare = 0.1, kLeastNamedShare = 0.02, kLeastWindow = 0.5, kLeastNamedWindow = 0.25;
  constexpr double kLeastRegularity = 0.5;
  if (candidate.may_be_layers) return false;
  if (candidate.is_named)
    return candidate.share >= kLeastNamedShare && candidate.window_share >= kLeastNamedWindow;
  return candidate.share >= kLeastShare && candidate.window_share >= kLeastWindow &&
         candidate.regularity >= kLeastRegularity && candidate.kernels > 1;
}

std::vector<Candidate> candidates_of(ForeignRun& run, const std::vector<Launched>& work) {
  using Kind = StepsBy::Kind;
  const Kind kind = run.steps_by.kind;
  std::vector<Candidate> all;
  if (kind != Kind::kernels && kind != Kind::graph) all = range_candidates(run, work);
  std::optional<std::size_t> periods;
  if (kind == Kind::automatic || kind == Kind::kernels) {
    if (auto made = repeated(run, work, kernel_units(run, work), "kernels that repeat", 2)) {
      periods = made->steps.size();
      all.push_back(std::move(*made));
    }
  }
  if (kind == Kind::automatic || kind == Kind::graph) {
    if (auto made = repeated(run, work, graph_units(work), "graph launches", 1))
      all.push_back(std::move(*made));
  }
  // A range that is executed as often as kernels repeat has the same steps, and a name.
  constexpr double kConfirmed = 0.8, kAlmost = 0.9;
  for (Candidate& one : all) {
    if (!periods || one.is_named || one.weight > kConfirmed) continue;
    const auto [less, more] = std::minmax({*periods, one.steps.size()});
    const bool is_range = !one.steps.empty() && one.steps.front().range.has_value();
    if (is_range && static_cast<double>(less) >= kAlmost * static_cast<double>(more)) one.weight = kConfirmed;
  }
  std::erase_if(all, [](const Candidate& one) { return one.steps.empty(); });
  return all;
}

}  // namespace

std::vector<std::optional<std::size_t>> steps_of_work(ForeignRun& run, const std::vector<Launched>& work,
                                                      const std::vector<HostStep>& steps) {
  std::vector<std::optional<std::size_t>> places(work.size());
  std::unordered_map<std::int64_t, std::size_t> by_number;  // of ranges, whose number work may say
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].range) by_number.emplace(steps[i].number, i);
    if (!steps[i].work) continue;
    for (std::size_t at = steps[i].work->first; at < steps[i].work->second; ++at) places[at] = i;
  }
  std::size_t next = 0;  // of steps by time
  for (std::size_t i = 0; i < work.size(); ++i) {
    const auto& said = run.activities()[work[i].activity].step;
    if (const auto found = said ? by_number.find(*said) : by_number.end(); found != by_number.end()) {
      places[i] = found->second;
      continue;
    }
    while (next < steps.size() && steps[next].end_ns < work[i].asked_ns) ++next;
    // At the moment at which one ends and the next begins, it is the next one's.
    std::size_t at = next;
    if (at + 1 < steps.size() && steps[at + 1].start_ns <= work[i].asked_ns) ++at;
    if (at < steps.size() && !steps[at].work && steps[at].start_ns <= work[i].asked_ns) places[i] = at;
  }
  return places;
}

std::optional<Candidate> choose_steps(ForeignRun& run, const std::vector<Launched>& work,
                                      std::string& refused) {
  using Kind = StepsBy::Kind;
  const Kind kind = run.steps_by.kind;
  if (kind == Kind::none) return std::nullopt;
  const bool has_kernels = std::ranges::any_of(work, &Launched::is_kernel);
  std::optional<Candidate> best, best_refused;
  for (Candidate& one : candidates_of(run, work)) {
    judge(run, work, one);
    if (!has_kernels) one.share = 1;
    const bool is_wanted = kind != Kind::automatic || !has_kernels || is_credible(one);
    std::optional<Candidate>& place = is_wanted ? best : best_refused;
    if (!place || one.score() > place->score()) place = std::move(one);
  }
  if (!best && best_refused) {
    refused = fmt::format("{} ({} times) cover {:.1f}% of the device's time", best_refused->what,
                          best_refused->steps.size(), 100 * best_refused->share);
    if (best_refused->kernels < 2) refused += " and launch less than two kernels each";
    if (best_refused->may_be_layers)
      refused += ", but may be layers of one step (--steps-by kernels takes them)";
  }
  return best;
}

}  // namespace rooflm::foreign
