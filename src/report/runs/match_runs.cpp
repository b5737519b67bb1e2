// Which runs of two records are of the same configuration.
#include "report/runs/match_runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "record/config.h"
#include "report/runs/sweep.h"

namespace rooflm::report {
namespace {

/// Each text once, in the order of their first appearance.
class Distinct {
 public:
  void add(const std::string& text) {
    if (std::ranges::find(texts_, text) == texts_.end()) texts_.push_back(text);
  }
  [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }
  /// "x, y, z and 2 more"; `nothing` if there is none.
  [[nodiscard]] std::string list(const char* nothing) const {
    constexpr std::size_t kMost = 3;
    if (texts_.empty()) return nothing;
    const std::span shown = std::span(texts_).first(std::min(kMost, texts_.size()));
    const std::size_t left = texts_.size() - shown.size();
    return fmt::format("{}{}", fmt::join(shown, ", "), left > 0 ? fmt::format(" and {} more", left) : "");
  }

 private:
  std::vector<std::string> texts_;
};

std::string list_of(const std::vector<FoundRun>& runs) {
  Distinct labels;
  for (const FoundRun& found : runs) labels.add("'" + found.run.label + "'");
  return labels.list("no run");
}

std::vector<FoundRun> runs_of(Side side) {
  std::vector<FoundRun> found;
  for (const record::Reader& record : side) {
    for (record::Run& run : record.runs()) found.push_back({.record = &record, .run = std::move(run)});
  }
  return found;
}

void note_differences(const RunMatch& match, std::vector<std::string>& notes) {
  const auto differing = differences(match.a, match.b);
  if (!differing.empty()) notes.push_back(fmt::format("{}: {}", match.label, fmt::join(differing, ", ")));
}

using Environment = std::map<std::string, std::string>;

std::vector<Environment> environments_of(Side side) {
  std::vector<Environment> all;
  for (const record::Reader& record : side) {
    Environment& values = all.emplace_back();
    for (const auto& row : record.environment()) values[row.key] = row.value;
    for (const char* key : {"rooflm_version", "revision"}) values[key] = record.meta(key);
    values.erase("memory");  // says how much is free, which never stays
  }
  return all;
}

/// What the machines and the programs differ in, between the sides or within one: 'cpu', 'compiler', the
/// revision of rooflm.
void note_environments(Side a, Side b, std::vector<std::string>& notes) {
  const std::vector<Environment> of_a = environments_of(a);
  const std::vector<Environment> of_b = environments_of(b);
  std::set<std::string> keys;
  for (const auto* side : {&of_a, &of_b}) {
    for (const Environment& values : *side) {
      for (const auto& [key, value] : values) keys.insert(key);
    }
  }
  for (const std::string& key : keys) {
    const auto values_on = [&](const std::vector<Environment>& side) {
      Distinct distinct;
      for (const Environment& values : side) {
        const auto found = values.find(key);
        distinct.add(found == values.end() || found->second.empty() ? "-" : found->second);
      }
      return distinct;
    };
    const Distinct in_a = values_on(of_a);
    const Distinct in_b = values_on(of_b);
    const bool is_one = in_a.texts().size() == 1 && in_a.texts() == in_b.texts();
    if (!is_one) notes.push_back(fmt::format("{}: {} / {}", key, in_a.list("-"), in_b.list("-")));
  }
}

/// Fields that do not tell configurations apart, but change times: all but the seed, and what follows from
/// others (the number of parameters).
bool changes_times(const record::Field& field) {
  return !field.decides && !field.option.empty() && field.key != "seed";
}

/// "threads=8, warmup=2".
std::string text_of(const record::Config& config, const std::vector<const record::Field*>& fields) {
  std::vector<std::string> texts;
  for (const record::Field* field : fields) {
    texts.push_back(fmt::format("{}={}", field->key, record::text_or_initial(config, *field)));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// Those of which a side of the match has several values: its runs are not samples of one time.
std::vector<const record::Field*> mixed_fields(const RunMatch& match) {
  std::vector<const record::Field*> mixed;
  for (const record::Field& field : record::config_fields()) {
    if (!changes_times(field)) continue;
    const bool is_mixed = std::ranges::any_of(std::array{&match.a, &match.b}, [&](const auto* runs) {
      Distinct values;
      for (const FoundRun& found : *runs) values.add(record::text_or_initial(found.run.config, field));
      return values.texts().size() > 1;
    });
    if (is_mixed) mixed.push_back(&field);
  }
  return mixed;
}

/// One match, or one for each value of the fields that a side mixes; their labels name the values.
std::vector<RunMatch> without_mixtures(RunMatch match) {
  const std::vector<const record::Field*> mixed = mixed_fields(match);
  if (mixed.empty()) return {std::move(match)};
  std::vector<RunMatch> parts;
  std::map<std::string, std::size_t> index;
  for (const bool is_a : {true, false}) {
    for (FoundRun& found : is_a ? match.a : match.b) {
      const std::string values = text_of(found.run.config, mixed);
      if (found.run.label.find(values) == std::string::npos) found.run.label += ", " + values;
      const auto [entry, is_new] = index.try_emplace(values, parts.size());
      if (is_new) parts.push_back({.label = found.run.label, .a = {}, .b = {}});
      RunMatch& part = parts[entry->second];
      (is_a ? part.a : part.b).push_back(std::move(found));
    }
  }
  return parts;
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
  std::vector<const record::Field*> fields;
  for (const record::Field& field : record::config_fields()) {
    if (changes_times(field)) fields.push_back(&field);
  }
  std::map<std::string, std::size_t> index;
  for (const FoundRun& own : a_is_foreign ? b : a) {
    const std::string setting = record::identity_of(own.run.config) + text_of(own.run.config, fields);
    const auto [entry, is_new] = index.try_emplace(setting, found.matches.size());
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

/// Whether runs are repetitions of one configuration: they differ in the seed at most.
bool are_of_one_configuration(const std::vector<FoundRun>& runs) {
  if (runs.empty()) return false;
  const std::string identity = record::identity_of(runs.front().run.config);
  return std::ranges::all_of(
             runs,
             [&](const FoundRun& found) { return record::identity_of(found.run.config) == identity; }) &&
         mixed_fields({.label = "", .a = runs, .b = {}}).empty();
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

std::vector<std::string> differences(std::span<const FoundRun> a, std::span<const FoundRun> b) {
  std::vector<std::string> keys;
  std::map<std::string, std::pair<Distinct, Distinct>> values;
  for (const bool is_a : {true, false}) {
    for (const FoundRun& found : is_a ? a : b) {
      for (const auto& [key, value] : configuration(found.run)) {
        const auto [entry, is_new] = values.try_emplace(key);
        if (is_new) keys.push_back(key);
        (is_a ? entry->second.first : entry->second.second).add(value);
      }
    }
  }
  std::vector<std::string> texts;
  for (const std::string& key : keys) {
    const auto& [in_a, in_b] = values.at(key);
    if (!std::ranges::is_permutation(in_a.texts(), in_b.texts()))
      texts.push_back(fmt::format("{}: {} / {}", key, in_a.list("-"), in_b.list("-")));
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
  for (RunMatch& identical : std::exchange(found.matches, {})) {
    for (RunMatch& match : without_mixtures(std::move(identical))) {
      if (match.b.empty()) {
        only_a.insert(only_a.end(), match.a.begin(), match.a.end());
      } else if (match.a.empty()) {
        only_b.insert(only_b.end(), match.b.begin(), match.b.end());
      } else {
        found.matches.push_back(std::move(match));
      }
    }
  }
  if (found.matches.empty()) {
    if (!are_of_one_configuration(runs_a) || !are_of_one_configuration(runs_b)) {
      throw core::InputError(fmt::format("{} and {} share no configuration: {} / {}", names_of(a),
                                         names_of(b), list_of(only_a), list_of(only_b)));
    }
    found.matches.push_back({.label = runs_a[0].run.label, .a = runs_a, .b = runs_b});
  } else {
    Distinct labels;
    for (const FoundRun& run : only_a) labels.add(run.run.label);
    found.only_a = labels.texts();
    if (!only_a.empty()) found.notes.push_back("only in the first record: " + list_of(only_a));
    if (!only_b.empty()) found.notes.push_back("only in the second record: " + list_of(only_b));
  }
  for (const RunMatch& match : found.matches) note_differences(match, found.notes);
  note_environments(a, b, found.notes);
  for (const Side side : {a, b}) {
    for (const record::Reader& record : side) note_partial(record, found.notes);
  }
  return found;
}

}  // namespace rooflm::report
