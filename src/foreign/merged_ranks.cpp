// Traces of several ranks in one file.
#include "foreign/merged_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>
#include <unordered_map>

#include "core/error.h"
#include "core/printable.h"

namespace rooflm::foreign {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// "rank 3" of "[Rank3] python"; else what stands in brackets: "[tp00]" of "[TP00] 1234". "" without either.
std::string rank_label(std::string_view label) {
  std::string text(label);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  for (auto at = text.find("rank"); at != std::string::npos; at = text.find("rank", at + 1)) {
    auto begin = text.find_first_not_of(" _-:#=", at + 4);
    if (begin == std::string::npos || !is_digit(text[begin])) continue;
    const auto end =
        std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), is_digit);
    return "rank " + std::string(text.begin() + static_cast<std::ptrdiff_t>(begin), end);
  }
  const auto begin = text.find_first_of("[(");
  const auto end = text.find_first_of("])", begin == std::string::npos ? 0 : begin);
  return begin == std::string::npos || end == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

/// As Kineto names processes that stand for a device.
bool is_device_label(std::string_view label) {
  return label.starts_with("GPU ") || label.starts_with("MTIA ") || label.starts_with("XPU ");
}

/// The activities of one process that is a host: of which call each correlation is.
struct Host {
  std::int64_t process = 0;
  std::string label{};
  std::size_t first = 0, last = 0;                         ///< activities
  std::unordered_map<std::int64_t, std::int64_t> calls{};  ///< correlation, when it began
  std::unordered_map<std::int64_t, std::int64_t> names{};  ///< correlation, of the call
  std::size_t repeated = 0;  ///< calls whose correlation an earlier one of the same name has

  [[nodiscard]] bool can_have_started(const record::Activity& work) const {
    const auto call = work.correlation ? calls.find(*work.correlation) : calls.end();
    return call != calls.end() && call->second <= work.start_ns;
  }
};

class Separation {
 public:
  Separation(ForeignRun& run, const std::vector<std::int64_t>& processes,
             const std::function<std::string(std::int64_t)>& label_of, const std::string& where)
      : run_(run), processes_(processes), label_of_(label_of), where_(where) {}

  MergedRanks separate() {
    find_hosts();
    for (const Host& host : hosts_) {
      constexpr std::size_t kFew = 8;
      if (host.calls.size() >= kFew && 2 * host.repeated > host.calls.size()) {
        throw core::InputError(fmt::format(
            "{}: process {} calls with each correlation several times: the file holds traces of several "
            "processes under one number, whose kernels cannot be told apart; import each one's file alone",
            where_, host.process));
      }
    }
    if (hosts_.size() < 2) return {};
    const char* how = "by the names of their processes";
    if (!by_label()) {
      how = "by their order in the file";
      if (!by_order()) {
        how = "by the calls that can have started them";
        by_calls();
      }
    }
    apply();
    run_.say(
        fmt::format("the file holds traces of {} ranks: kernels were given to ranks {}, and calls are "
                    "matched with kernels within each",
                    hosts_.size(), how));
    return std::move(found_);
  }

 private:
  [[nodiscard]] bool is_on_device(const record::Activity& activity) const {
    return run_.lane(activity.lane).kind == "device";
  }

  void find_hosts() {
    std::map<std::int64_t, Host> hosts;
    const auto& activities = run_.activities();
    for (std::size_t i = 0; i < activities.size(); ++i) {
      if (is_on_device(activities[i])) continue;
      Host& host = hosts.try_emplace(processes_[i], Host{.process = processes_[i], .first = i}).first->second;
      host.last = i;
      if (!activities[i].correlation || run_.name_of(activities[i]).kind != "api") continue;
      const std::int64_t id = *activities[i].correlation;
      host.calls.try_emplace(id, activities[i].start_ns);
      const auto [name, is_new] = host.names.try_emplace(id, activities[i].name);
      if (!is_new && name->second == activities[i].name) ++host.repeated;
    }
    for (auto& [process, host] : hosts) {
      const std::string label = label_of_(process);
      if (host.calls.empty() || is_device_label(label)) continue;
      host.label = rank_label(label);
      hosts_.push_back(std::move(host));
    }
    std::ranges::sort(hosts_, {}, &Host::first);
  }

  /// Whether the processes of the device are named as those of the hosts.
  bool by_label() {
    std::map<std::string, std::size_t> ranks;
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
      if (hosts_[rank].label.empty() || !ranks.try_emplace(hosts_[rank].label, rank).second) return false;
    }
    return give([&](std::size_t i) -> std::optional<std::size_t> {
      const auto rank = ranks.find(rank_label(label_of_(processes_[i])));
      return rank == ranks.end() ? std::nullopt : std::optional(rank->second);
    });
  }

  /// Files that were put one after the other: what stands between two hosts is of the one whose calls can
  /// have started it, the first if both can.
  bool by_order() {
    for (std::size_t rank = 1; rank < hosts_.size(); ++rank) {
      if (hosts_[rank].first < hosts_[rank - 1].last) return false;
    }
    return give([&](std::size_t i) -> std::optional<std::size_t> {
      std::size_t rank = 0;
      while (rank + 1 < hosts_.size() && hosts_[rank + 1].first < i) ++rank;
      const record::Activity& work = run_.activities()[i];
      const bool is_between = i > hosts_[rank].last && rank + 1 < hosts_.size();
      return is_between && !hosts_[rank].can_have_started(work) && hosts_[rank + 1].can_have_started(work)
                 ? rank + 1
                 : rank;
    });
  }

  /// The rank whose calls can have started most of some work, at least half; nothing where several can. Ranks
  /// that have no work yet come first.
  [[nodiscard]] std::optional<std::size_t> sole_best(const std::vector<std::size_t>& started,
                                                     const std::set<std::size_t>& free,
                                                     std::size_t works) const {
    std::optional<std::size_t> best;
    bool is_sole = true;
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
      if (!free.empty() && !free.contains(rank)) continue;
      if (best && started[rank] == started[*best]) is_sole = false;
      if (best && started[rank] <= started[*best]) continue;
      best = rank;
      is_sole = true;
    }
    return is_sole && best && 2 * started[*best] >= works ? best : std::nullopt;
  }

  /// One host alone must have started all work of a process of the device.
  void by_calls() {
    using Group = std::pair<std::int64_t, std::string>;
    std::map<Group, std::vector<std::size_t>> started;
    std::map<Group, std::size_t> works;
    const auto group_of = [&](std::size_t i) {
      return Group{processes_[i], run_.lane(run_.activities()[i].lane).device};
    };
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      const record::Activity& work = run_.activities()[i];
      if (!is_on_device(work) || !work.correlation) continue;
      auto& of_group = started.try_emplace(group_of(i), hosts_.size()).first->second;
      ++works[group_of(i)];
      for (std::size_t rank = 0; rank < hosts_.size(); ++rank)
        of_group[rank] += hosts_[rank].can_have_started(work);
    }
    std::map<Group, std::size_t> chosen;
    std::set<std::size_t> free;
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) free.insert(rank);
    while (chosen.size() < started.size()) {
      const std::size_t before = chosen.size();
      for (const auto& [group, of_group] : started) {
        if (chosen.contains(group)) continue;
        const auto rank = sole_best(of_group, free, works[group]);
        if (!rank) continue;
        chosen[group] = *rank;
        free.erase(*rank);
      }
      if (chosen.size() > before) continue;
      const auto open =
          std::ranges::find_if(started, [&](const auto& one) { return !chosen.contains(one.first); });
      throw core::InputError(fmt::format(
          "{}: the file holds traces of {} ranks, and calls of several of them can have started the work of "
          "device process {}: import each rank's file alone",
          where_, hosts_.size(), core::printable(label_of_(open->first.first))));
    }
    give([&](std::size_t i) -> std::optional<std::size_t> {
      const auto rank = chosen.find(group_of(i));
      return rank == chosen.end() ? 0 : rank->second;
    });
  }

  template <class RankOf>
  bool give(const RankOf& rank_of) {
    ranks_.clear();
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (!is_on_device(run_.activities()[i])) continue;
      const std::optional<std::size_t> rank = rank_of(i);
      if (!rank) return false;
      ranks_[i] = *rank;
    }
    return true;
  }

  [[nodiscard]] std::string name(std::size_t rank) const {
    return hosts_[rank].label.empty() ? fmt::format("process {}", hosts_[rank].process) : hosts_[rank].label;
  }

  /// Devices that have the same number in several ranks get others.
  std::string device_of(std::size_t rank, const std::string& device) {
    const auto [known, is_new] = found_.devices.try_emplace({rank, device}, device);
    if (!is_new) return known->second;
    for (int number = 0; !taken_.insert(known->second).second; ++number) {
      known->second = fmt::format("{}{}", device.substr(0, device.find(':') + 1), number);
    }
    if (known->second != device) {
      run_.say(fmt::format("{} of {} is {} here", device, name(rank), known->second));
    }
    return known->second;
  }

  void apply() {
    std::set<std::int64_t> named;
    std::map<std::int64_t, std::size_t> hosts;
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) hosts[hosts_[rank].process] = rank;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      record::Activity& activity = run_.activities()[i];
      const auto work = ranks_.find(i);
      const auto host = hosts.find(processes_[i]);
      if (work == ranks_.end() && host == hosts.end()) continue;
      const std::size_t rank = work != ranks_.end() ? work->second : host->second;
      constexpr std::int64_t kMostId = std::int64_t{1} << 40U;
      if (activity.correlation && *activity.correlation > 0 && *activity.correlation < kMostId) {
        *activity.correlation += static_cast<std::int64_t>(rank) * kMostId;
      }
      if (work != ranks_.end()) {
        record::Lane lane = run_.lane(activity.lane);
        lane.device = device_of(rank, lane.device);
        lane.name = fmt::format("{} {}", name(rank), lane.name);
        activity.lane = run_.lane(fmt::format("{} {}", rank, activity.lane), lane);
      } else if (named.insert(activity.lane).second) {
        record::Lane& lane = run_.lane(activity.lane);
        lane.name = fmt::format("{} {}", name(rank), lane.name);
      }
    }
    found_.of_process = std::move(hosts);
  }

  ForeignRun& run_;
  const std::vector<std::int64_t>& processes_;
  const std::function<std::string(std::int64_t)>& label_of_;
  const std::string& where_;
  std::vector<Host> hosts_;
  std::unordered_map<std::size_t, std::size_t> ranks_;  ///< of work of the device, by activity
  std::set<std::string> taken_;
  MergedRanks found_;
};

}  // namespace

std::string MergedRanks::device(std::int64_t process, const std::string& device) const {
  const auto rank = of_process.find(process);
  const auto found = rank == of_process.end() ? devices.end() : devices.find({rank->second, device});
  return found == devices.end() ? device : found->second;
}

MergedRanks separate_ranks(ForeignRun& run, const std::vector<std::int64_t>& processes,
                           const std::function<std::string(std::int64_t)>& label_of,
                           const std::string& where) {
  return Separation(run, processes, label_of, where).separate();
}

}  // namespace rooflm::foreign
