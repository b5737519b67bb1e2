// Which runs are ranks of one job, and when they waited for each other.
#include "report/runs/job_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/units.h"
#include "report/page/json_parts.h"
#include "report/runs/collective_calls.h"

namespace rooflm::report {
namespace {

/// Nanoseconds, 36 years: sums and differences of some of them are 64-bit numbers.
constexpr std::int64_t kMostTime = std::int64_t{1} << 60U;

bool is_time(std::int64_t ns) { return -kMostTime < ns && ns < kMostTime; }

std::int64_t to_ns(double seconds) {
  constexpr auto kMost = static_cast<double>(kMostTime);
  return std::llround(std::clamp(seconds * core::kGiga, -kMost, kMost));
}

/// As the record says; a number that is none of a rank is 0.
int rank_of_run(const RunData& run) {
  constexpr double kMostRanks = 1e6;
  const double rank = run.number("rank").value_or(0);
  return rank >= 0 && rank < kMostRanks ? static_cast<int>(rank) : 0;
}

/// The members of each group that the rank of a run is in, as text; of a damaged fact none.
std::map<std::string, std::string> groups_of(const RunData& run) {
  std::map<std::string, std::string> groups;
  const std::string text = run.text("groups");
  if (text.empty()) return groups;
  try {
    const Json json = core::parse_json_object(text, "fact groups", "the groups of a rank");
    for (const auto& [name, members] : json.items()) groups[name] = members.dump();
  } catch (const core::InputError&) {  // a record of somebody else
    groups.clear();
  }
  return groups;
}

/// Records of one job: which of them know each other by a communicator, and as which ranks.
struct Communicators {
  std::map<std::string, std::set<std::size_t>> runs;        ///< of each communicator
  std::vector<std::pair<std::int64_t, std::int64_t>> rank;  ///< of each run: size of its largest, rank there

  explicit Communicators(const CollectiveCalls& all) : rank(all.steps.size(), {0, -1}) {
    for (const CollectiveCall& call : all.calls) {
      if (call.communicator.empty()) continue;
      runs[call.communicator].insert(call.run);
      if (call.rank < 0) continue;
      rank[call.run] = std::max(rank[call.run], std::pair(call.ranks, call.rank));
    }
  }

  /// All that know `run`, directly or through others.
  [[nodiscard]] std::set<std::size_t> job_of(std::size_t run) const {
    std::set<std::size_t> job{run};
    for (std::size_t before = 0; before != job.size();) {
      before = job.size();
      for (const auto& [name, members] : runs) {
        if (std::ranges::any_of(members, [&](std::size_t member) { return job.contains(member); }))
          job.insert(members.begin(), members.end());
      }
    }
    return job;
  }
};

}  // namespace

std::vector<RankWait> waits_of_ops(const std::vector<RankRun>& ranks) {
  struct Call {
    int rank = 0;
    std::int64_t start_ns = 0, end_ns = 0;
  };
  using Key =
      std::tuple<std::int64_t, std::string, std::string, std::int64_t>;  // step, group, members, number
  std::map<Key, std::vector<Call>> together;
  for (const RankRun& rank : ranks) {
    const auto groups = groups_of(*rank.run);
    std::map<std::pair<std::int64_t, std::string>, std::int64_t> numbers;
    for (const record::Event& event : rank.run->events) {
      const TimedOp* op = rank.run->find_op(event.op);
      if (op == nullptr || op->op.op_class != "collective") continue;
      if (!is_time(event.start_ns) || event.device_ns < 0 || !is_time(event.device_ns)) continue;
      const auto group = groups.find(op->op.variant);
      if (group == groups.end()) continue;
      const std::int64_t number = numbers[{event.step, group->first}]++;
      const std::int64_t start_ns = event.start_ns + rank.offset_ns;
      together[{event.step, group->first, group->second, number}].push_back(
          {rank.rank, start_ns, start_ns + event.device_ns});
    }
  }
  std::vector<RankWait> waits;
  for (const auto& [key, calls] : together) {
    const std::int64_t last_ns = std::ranges::max_element(calls, {}, &Call::start_ns)->start_ns;
    for (const Call& call : calls) {
      const std::int64_t end_ns = std::min(call.end_ns, last_ns);
      if (end_ns > call.start_ns) waits.push_back({call.rank, call.start_ns, end_ns});
    }
  }
  return waits;
}

JobRanks::JobRanks(const RecordSet& set) : set_(set), jobs_(set.runs.size()) {
  for (std::size_t i = 0; i < set.runs.size(); ++i) {
    jobs_[i].first = i;
    const RunData& run = set.runs[i];
    if (run.other_ranks.empty()) continue;
    std::vector<RankRun>& ranks = jobs_[i].ranks;
    // Of steps that the run itself has not, the first rank has a run as the others have.
    if (run.other_ranks.front().number("rank") != 0.0) ranks.push_back({.run = &run});
    for (const RunData& other : run.other_ranks) ranks.push_back({.run = &other, .rank = rank_of_run(other)});
    jobs_[i].waits = waits_of_ops(ranks);
  }
  if (set.runs.size() > 1) find_jobs_of_records();
}

void JobRanks::find_jobs_of_records() {
  const CollectiveCalls all = collective_calls(set_);
  if (all.calls.empty()) return;
  const Communicators known(all);
  for (std::size_t i = 0; i < set_.runs.size(); ++i) {
    if (jobs_[i].first != i || !jobs_[i].ranks.empty()) continue;
    const std::set<std::size_t> job = known.job_of(i);
    std::vector<std::size_t> runs(job.begin(), job.end());
    std::ranges::stable_sort(runs, {}, [&](std::size_t run) { return known.rank[run].second; });
    std::set<std::int64_t> numbers;
    for (const std::size_t run : runs) numbers.insert(known.rank[run].second);
    if (runs.size() < 2) continue;
    // Ranks of groups that do not know their place among all are counted in their order.
    const bool are_known = numbers.size() == runs.size() && *numbers.begin() >= 0;
    const std::size_t first = runs.front();
    Job& all_ranks = jobs_[first];
    std::map<std::size_t, int> rank_of;
    for (std::size_t place = 0; place < runs.size(); ++place) {
      const std::size_t run = runs[place];
      jobs_[run].first = first;
      rank_of[run] = static_cast<int>(are_known ? known.rank[run].second : static_cast<std::int64_t>(place));
      all_ranks.ranks.push_back({.run = &set_.runs[run],
                                 .rank = rank_of[run],
                                 .offset_ns = to_ns(all.zeros_s[run] - all.zeros_s[first])});
    }
    for (const CollectiveCall& call : all.calls) {
      if (!rank_of.contains(call.run) || call.waiting_s.value_or(0) <= 0) continue;
      const std::int64_t start_ns = to_ns(call.start_s - all.zeros_s[first]);
      all_ranks.waits.push_back({rank_of[call.run], start_ns, start_ns + to_ns(*call.waiting_s)});
    }
  }
}

Timeline JobRanks::timeline(std::size_t run, std::size_t most_events) const {
  const Job& job = jobs_[run];
  if (!job.ranks.empty()) return timeline_of_ranks(job.ranks, job.waits, most_events);
  Timeline alone = timeline_of(set_.runs[run], most_events);
  if (job.first != run && !alone.events.empty())
    alone.notes.push_back(fmt::format("The timeline of {} has all ranks of this job.",
                                      set_.files[set_.runs[job.first].file].name));
  return alone;
}

}  // namespace rooflm::report
