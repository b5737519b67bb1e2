// A part of what records hold: some runs, phases, scopes or ops.
#include "report/model/filter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/printable.h"
#include "report/model/summaries.h"

namespace rooflm::report {
namespace {

bool is_in(const std::vector<std::string>& names, std::string_view name) {
  return names.empty() || std::ranges::find(names, name) != names.end();
}

/// "h.1" begins "h.1/attention" but not "h.10".
bool begins(std::string_view scope, const std::string& wanted) {
  return scope.starts_with(wanted) && (scope.size() == wanted.size() || scope[wanted.size()] == '/');
}

[[noreturn]] void fail_empty(const char* option, const std::vector<std::string>& typed,
                             const std::set<std::string>& known) {
  constexpr std::size_t kMost = 20;
  std::vector<std::string> shown;
  for (const std::string& name : known) {
    if (shown.size() < kMost) shown.push_back(core::printable(name));
  }
  throw core::UsageError(fmt::format("{} {}: not in the record, which has {}{}", option,
                                     core::printable(fmt::format("{}", fmt::join(typed, ","))),
                                     fmt::join(shown, ", "), known.size() > kMost ? ", ..." : ""));
}

void filter_runs(const Filter& filter, RecordSet& set) {
  std::set<std::string> known;
  std::vector<RunData> kept;
  for (std::size_t i = 0; i < set.runs.size(); ++i) {
    known.insert(fmt::format("{}: {}", i + 1, set.runs[i].run.label));
    if (filter.takes_run(set.runs[i].run.label, i + 1)) kept.push_back(std::move(set.runs[i]));
  }
  if (kept.empty() && !set.runs.empty()) fail_empty("--run", filter.runs, known);
  set.runs = std::move(kept);
}

/// Of a record without ops only the samples of a phase are a part.
void require_samples(const Filter& filter, const RecordSet& set) {
  const bool is_of_phases = filter.scopes.empty() && filter.ops.empty();
  const auto has_samples = [](const RunData& run) { return !run.samples.empty(); };
  if (is_of_phases && std::ranges::any_of(set.runs, has_samples)) return;
  const char* option = is_of_phases ? "--phase" : filter.scopes.empty() ? "--op" : "--scope";
  throw core::UsageError(fmt::format("the record has no ops: {} has no meaning", option));
}

void filter_ops(const Filter& filter, RecordSet& set) {
  if (filter.phases.empty() && filter.scopes.empty() && filter.ops.empty()) return;
  std::set<std::string> phases;
  std::set<std::string> parts;
  std::set<std::string> kinds;
  std::size_t left = 0;
  std::size_t before = 0;
  for (RunData& run : set.runs) {
    before += run.ops.size();
    run.is_part = true;
    run.other_ranks.clear();
    std::erase_if(run.ops, [&](const TimedOp& op) {
      phases.insert(op.op.phase);
      if (!filter.takes_phase(op.op.phase)) return true;
      parts.insert(op.part);
      if (!filter.takes_scope(op.op.scope, op.part)) return true;
      kinds.insert(op.op.kind);
      return !is_in(filter.ops, op.op.kind);
    });
    std::erase_if(run.samples,
                  [&](const record::Sample& sample) { return !filter.takes_phase(sample.phase); });
    left += run.ops.size();
  }
  if (left > 0) return;
  if (before == 0) return require_samples(filter, set);
  if (parts.empty()) fail_empty("--phase", filter.phases, phases);
  if (kinds.empty()) fail_empty("--scope", filter.scopes, parts);
  fail_empty("--op", filter.ops, kinds);
}

}  // namespace

std::string Filter::text() const {
  std::string text;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty())
      text += fmt::format("{}{} {}", text.empty() ? "" : "; ", what, fmt::join(names, ", "));
  };
  add("run", runs);
  add("phase", phases);
  add("scope", scopes);
  add("op", ops);
  return text;
}

bool Filter::takes_run(const std::string& label, std::size_t number) const {
  const auto is_it = [&](const std::string& name) {
    const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    return is_number ? name == fmt::format("{}", number) : label.find(name) != std::string::npos;
  };
  return runs.empty() || std::ranges::any_of(runs, is_it);
}

bool Filter::takes_phase(std::string_view phase) const { return is_in(phases, phase); }

bool Filter::takes_scope(std::string_view scope, std::string_view part) const {
  const auto is_it = [&](const std::string& wanted) { return begins(scope, wanted) || begins(part, wanted); };
  return scopes.empty() || std::ranges::any_of(scopes, is_it);
}

void apply_filter(const Filter& filter, RecordSet& set) {
  if (filter.is_empty()) return;
  filter_runs(filter, set);
  filter_ops(filter, set);
}

}  // namespace rooflm::report
