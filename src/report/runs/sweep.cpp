// Runs of a record as a sweep.
#include "report/runs/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>

namespace rooflm::report {
namespace {

constexpr std::size_t kLongestShortName = 28;  // longer ones say less than the label

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// Dimensions by their letter, as in the labels of runs: "B", "T", "V".
std::string title_of(const std::string& name) {
  const record::Field* field = record::find_field(name);
  return std::string(field != nullptr && field->title.size() == 1 ? field->title : name);
}

/// The text, or with a number when it is among `taken`, to which the result is added.
std::string unique(const std::string& text, std::vector<std::string>& taken) {
  std::string name = text;
  for (int copy = 2; is_among(taken, name); ++copy) name = fmt::format("{} ({})", text, copy);
  taken.push_back(name);
  return name;
}

/// Labels of the runs; where several share one, with what these differ in: "gpt2 B=4 T=64, warmup=0".
std::vector<std::string> labels_of(const std::vector<const record::Run*>& runs) {
  std::map<std::string, std::vector<const record::Run*>> same;
  for (const record::Run* run : runs) same[run->label].push_back(run);
  std::map<std::string, std::vector<std::string>> differing;
  for (const auto& [label, of_label] : same) differing[label] = telling(of_label);
  std::vector<std::string> labels;
  for (const record::Run* run : runs) {
    const std::string more = short_label(*run, differing.at(run->label));
    labels.push_back(more.empty() ? run->label : run->label + ", " + more);
  }
  return labels;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> configuration(const record::Run& run) {
  std::vector<std::pair<std::string, std::string>> all;
  const bool is_ours = run.kind != "foreign";
  for (const record::Field& field : record::config_fields()) {
    std::string text = is_ours ? record::text_or_initial(run.config, field) : run.config.text(field.key);
    if (!text.empty()) all.emplace_back(field.key, std::move(text));
  }
  for (const auto& [key, value] : run.config.entries()) {
    if (record::find_field(key) == nullptr) all.emplace_back(key, record::format_value(value));
  }
  return all;
}

std::vector<const record::Run*> runs_of(const std::vector<RunData>& runs) {
  std::vector<const record::Run*> pointers;
  for (const RunData& run : runs) pointers.push_back(&run.run);
  return pointers;
}

std::vector<std::string> varying(const std::vector<const record::Run*>& runs) {
  std::vector<std::string> names;
  std::map<std::string, std::pair<std::string, std::size_t>> first;  // the first value, and how many have it
  std::size_t configured = 0;
  for (const record::Run* run : runs) {
    const auto values = configuration(*run);
    if (!values.empty()) ++configured;
    for (const auto& [name, value] : values) {
      const auto [entry, is_new] = first.try_emplace(name, value, 0);
      if (is_new) names.push_back(name);
      if (entry->second.first == value) ++entry->second.second;
    }
  }
  std::erase_if(names, [&](const std::string& name) { return first.at(name).second == configured; });
  return names;
}

std::vector<std::string> telling(const std::vector<const record::Run*>& runs,
                                 const std::vector<std::string>& left_out) {
  std::vector<std::map<std::string, std::string>> values;
  for (const record::Run* run : runs) {
    const auto of_run = configuration(*run);
    if (!of_run.empty()) values.emplace_back(of_run.begin(), of_run.end());
  }
  // Runs of one group have the same values of all names so far.
  std::vector<std::size_t> group(values.size(), 0);
  std::size_t groups = 1;
  std::vector<std::string> names;
  for (const std::string& name : varying(runs)) {
    if (is_among(left_out, name)) continue;
    std::map<std::pair<std::size_t, std::string>, std::size_t> split;
    std::vector<std::size_t> finer;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto found = values[i].find(name);
      const std::string value = found == values[i].end() ? "" : found->second;
      finer.push_back(split.try_emplace({group[i], value}, split.size()).first->second);
    }
    // An engine brings its kind of attention, but the reader may not know which: such options are named all
    // the same.
    const record::Field* field = record::find_field(name);
    const bool is_choice =
        field != nullptr && field->group == "Run" && field->type == record::FieldType::text;
    if (split.size() == groups && !is_choice) continue;
    groups = split.size();
    group = std::move(finer);
    names.push_back(name);
  }
  return names;
}

std::string key_without(const record::Run& run, const std::vector<std::string>& left_out) {
  std::string key;
  for (const auto& [name, value] : configuration(run)) {
    if (is_among(left_out, name)) continue;
    key.append(name).append("=").append(value).append("\n");
  }
  return key;
}

std::string short_label(const record::Run& run, const std::vector<std::string>& names) {
  std::string label;
  for (const auto& [name, value] : configuration(run)) {
    if (!is_among(names, name)) continue;
    const bool is_number = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
    if (!label.empty()) label += ' ';
    if (is_number) label.append(title_of(name)).append("=");
    label += value;
  }
  return label;
}

std::vector<RunName> run_names(const std::vector<RunData>& runs) {
  const std::vector<const record::Run*> pointers = runs_of(runs);
  const std::vector<std::string> differing = telling(pointers);
  std::vector<RunName> names;
  std::size_t longest = 0;
  for (const std::string& label : labels_of(pointers)) {
    const std::string which = short_label(*pointers[names.size()], differing);
    longest = std::max(longest, which.size());
    names.push_back({.label = label, .which = which});
  }
  std::vector<std::string> labels;
  std::vector<std::string> short_names;
  for (RunName& name : names) {
    if (name.which.empty() || longest > kLongestShortName) name.which = name.label;
    name.which = unique(name.which, short_names);
    name.label = unique(name.label, labels);
  }
  return names;
}

}  // namespace rooflm::report
