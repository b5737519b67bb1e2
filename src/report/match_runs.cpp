// Which runs of two records are of the same configuration.
#include "report/match_runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "report/sweep.h"

namespace rooflm::report {
namespace {

std::string list_of(const std::vector<FoundRun>& runs) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> labels;
  for (const FoundRun& found : runs) {
    const std::string label = "'" + found.run.label + "'";
    if (std::ranges::find(labels, label) == labels.end()) labels.push_back(label);
  }
  const std::size_t count = labels.size();
  if (count == 0) return "no run";
  if (count > kMost) labels.resize(kMost);
  return fmt::format("{}{}", fmt::join(labels, ", "),
                     count > kMost ? fmt::format(" and {} more", count - kMost) : "");
}

std::vector<FoundRun> runs_of(Side side) {
  std::vector<FoundRun> found;
  for (const record::Reader& record : side) {
    for (record::Run& run : record.runs()) found.push_back({.record = &record, .run = std::move(run)});
  }
  return found;
}

void note_differences(const RunMatch& match, std::vector<std::string>& notes) {
  const auto differing = differences(match.a.front().run, match.b.front().run);
  if (!differing.empty()) notes.push_back(fmt::format("{}: {}", match.label, fmt::join(differing, ", ")));
}

/// What the machines and the programs differ in: 'cpu', 'compiler', the revision of rooflm.
void note_environments(const record::Reader& a, const record::Reader& b, std::vector<std::string>& notes) {
  std::map<std::string, std::pair<std::string, std::string>> values;
  for (const auto& row : a.environment()) values[row.key].first = row.value;
  for (const auto& row : b.environment()) values[row.key].second = row.value;
  for (const char* key : {"rooflm_version", "revision"}) values[key] = {a.meta(key), b.meta(key)};
  values.erase("memory");  // says how much is free, which never stays
  for (const auto& [key, value] : values) {
    if (value.first != value.second) {
      notes.push_back(fmt::format("{}: {} / {}", key, value.first.empty() ? "-" : value.first,
                                  value.second.empty() ? "-" : value.second));
    }
  }
}

/// Matches programs of others with ours; whether that is what the sides are.
bool match_across(const std::vector<FoundRun>& a, const std::vector<FoundRun>& b, RunMatches& found) {
  const auto count = [](const std::vector<FoundRun>& runs) {
    return static_cast<std::size_t>(
        std::ranges::count_if(runs, [](const FoundRun& one) { return is_foreign(one.run); }));
  };
  const bool a_is_foreign = count(a) == a.size() && count(b) == 0;
  const bool b_is_foreign = count(b) == b.size() && count(a) == 0;
  if (a.empty() || b.empty() || !(a_is_foreign || b_is_foreign)) return false;
  std::map<std::string, std::size_t> index;
  for (const FoundRun& own : a_is_foreign ? b : a) {
    const auto [entry, is_new] = index.try_emplace(record::identity_of(own.run.config), found.matches.size());
    if (is_new) {
      found.matches.push_back({.label = own.run.label,
                               .a = a_is_foreign ? a : std::vector<FoundRun>(),
                               .b = b_is_foreign ? b : std::vector<FoundRun>(),
                               .is_across = true});
    }
    RunMatch& match = found.matches[entry->second];
    (a_is_foreign ? match.b : match.a).push_back(own);
  }
  return true;
}

void note_partial(const record::Reader& record, std::vector<std::string>& notes) {
  if (!record.is_complete()) notes.push_back(record.path().string() + " is partial: its run did not finish");
}

}  // namespace

std::string names_of(Side side) {
  std::vector<std::string> names;
  for (const record::Reader& record : side) names.push_back(record.path().string());
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string> differences(const record::Run& a, const record::Run& b) {
  const auto value_of = [](const auto& configuration, const std::string& key) {
    for (const auto& [name, value] : configuration) {
      if (name == key) return value;
    }
    return std::string();
  };
  const auto config_a = configuration(a);
  const auto config_b = configuration(b);
  std::vector<std::string> texts;
  for (const auto& [key, value] : config_a) {
    const std::string other = value_of(config_b, key);
    if (value != other) texts.push_back(fmt::format("{}: {} / {}", key, value, other.empty() ? "-" : other));
  }
  for (const auto& [key, value] : config_b) {
    if (value_of(config_a, key).empty()) texts.push_back(fmt::format("{}: - / {}", key, value));
  }
  return texts;
}

bool is_foreign(const record::Run& run) { return run.kind == "foreign"; }

RunMatches match_runs(Side a, Side b) {
  const auto runs_a = runs_of(a);
  const auto runs_b = runs_of(b);
  RunMatches found;
  if (match_across(runs_a, runs_b, found)) return found;
  std::map<std::string, std::size_t> index;
  for (const FoundRun& run : runs_a) {
    const auto [entry, is_new] = index.try_emplace(record::identity_of(run.run.config), found.matches.size());
    if (is_new) found.matches.push_back({.label = run.run.label, .a = {}, .b = {}});
    found.matches[entry->second].a.push_back(run);
  }
  std::vector<FoundRun> only_b;
  for (const FoundRun& run : runs_b) {
    const auto entry = index.find(record::identity_of(run.run.config));
    if (entry == index.end()) {
      only_b.push_back(run);
    } else {
      found.matches[entry->second].b.push_back(run);
    }
  }
  std::vector<FoundRun> only_a;
  std::erase_if(found.matches, [&](const RunMatch& match) {
    if (match.b.empty()) only_a.insert(only_a.end(), match.a.begin(), match.a.end());
    return match.b.empty();
  });
  if (found.matches.empty()) {
    if (runs_a.size() != 1 || runs_b.size() != 1) {
      throw core::InputError(fmt::format("{} and {} share no configuration: {} / {}", names_of(a),
                                         names_of(b), list_of(runs_a), list_of(runs_b)));
    }
    found.matches.push_back({.label = runs_a[0].run.label, .a = runs_a, .b = runs_b});
  } else {
    if (!only_a.empty()) found.notes.push_back("only in the first record: " + list_of(only_a));
    if (!only_b.empty()) found.notes.push_back("only in the second record: " + list_of(only_b));
  }
  for (const RunMatch& match : found.matches) note_differences(match, found.notes);
  note_environments(a.front(), b.front(), found.notes);
  for (const Side side : {a, b}) {
    for (const record::Reader& record : side) note_partial(record, found.notes);
  }
  return found;
}

}  // namespace rooflm::report
