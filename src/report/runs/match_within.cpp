// Which configurations of one record are compared with each other.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "core/units.h"
#include "report/model/filter.h"
#include "report/runs/match_runs.h"
#include "report/runs/sweep.h"

namespace rooflm::report {
namespace {

constexpr const char* kSeed = "seed";  // runs that differ in it alone repeat each other

/// Runs that repeat one configuration.
struct Configuration {
  std::string name;
  std::vector<FoundRun> runs;
};

std::vector<const record::Run*> first_runs(const std::vector<Configuration>& configurations) {
  std::vector<const record::Run*> runs;
  for (const Configuration& one : configurations) runs.push_back(&one.runs.front().run);
  return runs;
}

std::vector<Configuration> configurations_of(const record::Reader& record) {
  std::vector<Configuration> all;
  std::map<std::string, std::size_t> index;
  for (record::Run& run : record.runs()) {
    const auto [entry, is_new] = index.try_emplace(key_without(run, {kSeed}), all.size());
    if (is_new) all.push_back({.name = run.label, .runs = {}});
    all[entry->second].runs.push_back({.record = &record, .run = std::move(run)});
  }
  const std::vector<std::string> told_by = telling(first_runs(all), {kSeed});
  for (Configuration& one : all) {
    const std::string name = short_label(one.runs.front().run, told_by);
    if (!name.empty()) one.name = name;
  }
  return all;
}

/// "1 'fp32', 2 'bf16'".
std::string list_of(const std::vector<Configuration>& configurations) {
  constexpr std::size_t kMost = 12;
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < std::min(kMost, configurations.size()); ++i)
    texts.push_back(fmt::format("{} '{}'", i + 1, core::printable(configurations[i].name)));
  return fmt::format("{}{}", fmt::join(texts, ", "), configurations.size() > kMost ? ", ..." : "");
}

std::string value_of(const Configuration& configuration, const std::string& setting) {
  for (const auto& [key, value] : report::configuration(configuration.runs.front().run)) {
    if (key == setting) return value;
  }
  return "";
}

/// Configurations of A and B, in pairs, that differ in one setting and in what follows from it.
struct Pairs {
  std::string setting{}, a{}, b{};
  std::vector<std::pair<Configuration, Configuration>> pairs{};
  std::vector<std::string> followers{};  ///< the setting, and those that change with it
};

/// Those that have one value wherever `setting` has one, and another wherever it has another.
std::vector<std::string> followers_of(const std::vector<Configuration>& all, const std::string& setting) {
  std::vector<std::string> followers;
  for (const std::string& other : varying(first_runs(all))) {
    std::map<std::string, std::string> there;
    std::map<std::string, std::string> back;
    const bool follows = std::ranges::all_of(all, [&](const Configuration& one) {
      const std::string x = value_of(one, setting);
      const std::string y = value_of(one, other);
      return there.try_emplace(x, y).first->second == y && back.try_emplace(y, x).first->second == x;
    });
    if (follows) followers.push_back(other);
  }
  return followers;
}

/// Without pairs, where the setting has not two values, or some have no counterpart.
Pairs pairs_by(const std::vector<Configuration>& all, const std::string& setting) {
  Pairs found{.setting = setting, .a = value_of(all.front(), setting)};
  found.followers = followers_of(all, setting);
  std::vector<std::string> left_out = found.followers;
  left_out.emplace_back(kSeed);
  std::map<std::string, std::pair<const Configuration*, const Configuration*>> groups;
  std::vector<std::string> order;
  for (const Configuration& one : all) {
    const std::string value = value_of(one, setting);
    if (value != found.a && found.b.empty()) found.b = value;
    if (value != found.a && value != found.b) return {};
    const std::string key = key_without(one.runs.front().run, left_out);
    const auto [entry, is_new] = groups.try_emplace(key, nullptr, nullptr);
    if (is_new) order.push_back(key);
    auto& place = value == found.a ? entry->second.first : entry->second.second;
    if (place != nullptr) return {};
    place = &one;
  }
  for (const std::string& key : order) {
    const auto& [a, b] = groups.at(key);
    if (a == nullptr || b == nullptr) return {};
    found.pairs.emplace_back(*a, *b);
  }
  return found;
}

/// The two that `names` choose.
std::vector<Configuration> chosen(const std::vector<Configuration>& all,
                                  const std::vector<std::string>& names, const std::string& file) {
  std::vector<Configuration> two;
  for (const std::string& name : names) {
    const Filter filter{.runs = {name}};
    std::vector<Configuration> taken;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool is_it =
          filter.takes_run(all[i].name, i + 1) || filter.takes_run(all[i].runs.front().run.label, i + 1);
      if (is_it) taken.push_back(all[i]);
    }
    if (taken.size() != 1) {
      throw core::UsageError(fmt::format("compare: --run {}: {} of the configurations of {}, which has {}",
                                         core::printable(name), taken.size(), file, list_of(all)));
    }
    two.push_back(std::move(taken.front()));
  }
  if (two.size() != 2 || two[0].name == two[1].name)
    throw core::UsageError(
        fmt::format("compare: --run names two configurations of {}: {}", file, list_of(all)));
  return two;
}

/// The one setting that pairs all of them.
Pairs only_pairs(const std::vector<Configuration>& all, const std::string& file) {
  std::vector<Pairs> found;
  for (const std::string& setting : telling(first_runs(all), {kSeed})) {
    const bool is_told = std::ranges::any_of(found, [&](const Pairs& pairs) {
      return std::ranges::find(pairs.followers, setting) != pairs.followers.end();
    });
    Pairs pairs = is_told ? Pairs{} : pairs_by(all, setting);
    if (!pairs.pairs.empty()) found.push_back(std::move(pairs));
  }
  if (found.size() == 1) return std::move(found.front());
  std::vector<std::string> settings;
  for (const Pairs& pairs : found) settings.push_back(pairs.setting);
  throw core::UsageError(fmt::format(
      "compare: {} has {} configurations, {}: choose two with --run 1,2{}", file, all.size(), list_of(all),
      settings.empty() ? "" : fmt::format(", or pairs with --between {}", fmt::join(settings, "|"))));
}

}  // namespace

RunMatches match_within(const record::Reader& record, const std::vector<std::string>& names,
                        const std::string& between) {
  const std::string file = core::printable(record.path().string());
  std::vector<Configuration> all = configurations_of(record);
  if (!names.empty()) all = chosen(all, names, file);
  if (all.size() < 2) {
    throw core::UsageError(fmt::format("compare: {} has {}: name a second record, or one with two", file,
                                       core::format_count(all.size(), "configuration")));
  }
  RunMatches found;
  if (all.size() == 2 && between.empty()) {
    found.a_name = all[0].name;
    found.b_name = all[1].name;
    found.matches.push_back({.label = file, .a = all[0].runs, .b = all[1].runs});
  } else {
    const Pairs pairs = between.empty() ? only_pairs(all, file) : pairs_by(all, between);
    if (pairs.pairs.empty()) {
      throw core::UsageError(
          fmt::format("compare: --between {}: the configurations of {} do not pair by two values of it: {}",
                      core::printable(between), file, list_of(all)));
    }
    found.a_name = pairs.setting + " " + pairs.a;
    found.b_name = pairs.setting + " " + pairs.b;
    const std::vector<std::string> told_by = telling(first_runs(all), pairs.followers);
    for (const auto& [a, b] : pairs.pairs) {
      const std::string label = short_label(a.runs.front().run, told_by);
      found.matches.push_back({.label = label.empty() ? file : label, .a = a.runs, .b = b.runs});
    }
  }
  for (const RunMatch& match : found.matches) {
    const auto differing = differences(match.a, match.b);
    if (!differing.empty())
      found.notes.push_back(fmt::format("{}: {}", match.label, fmt::join(differing, ", ")));
  }
  return found;
}

}  // namespace rooflm::report
