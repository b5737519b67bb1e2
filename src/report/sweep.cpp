// Runs of a record as a sweep.
#include "report/sweep.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace rooflm::report {

std::vector<std::pair<std::string, std::string>> configuration(const record::Run& run) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const record::Field& field : record::config_fields()) {
    std::string text = record::text_or_initial(run.config, field);
    if (!text.empty()) all.emplace_back(field.key, std::move(text));
  }
  for (const auto& [key, value] : run.config.entries()) {
    if (record::find_field(key) == nullptr) all.emplace_back(key, record::format_value(value));
  }
  return all;
}

std::vector<std::string> varying(const std::vector<RunData>& runs) {
  std::vector<std::string> names;
  std::map<std::string, std::pair<std::string, std::size_t>> first;  // the first value, and how many have it
  for (const RunData& run : runs) {
    for (const auto& [name, value] : configuration(run.run)) {
      const auto [entry, is_new] = first.try_emplace(name, value, 0);
      if (is_new) names.push_back(name);
      if (entry->second.first == value) ++entry->second.second;
    }
  }
  std::erase_if(names, [&](const std::string& name) { return first.at(name).second == runs.size(); });
  return names;
}

std::string key_without(const record::Run& run, const std::vector<std::string>& left_out) {
  std::string key;
  for (const auto& [name, value] : configuration(run)) {
    if (std::find(left_out.begin(), left_out.end(), name) != left_out.end()) continue;
    key.append(name).append("=").append(value).append("\n");
  }
  return key;
}

std::string short_label(const record::Run& run, const std::vector<std::string>& names) {
  std::string label;
  for (const auto& [name, value] : configuration(run)) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    const bool is_number = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
    if (!label.empty()) label += ' ';
    if (is_number) label.append(name).append("=");
    label += value;
  }
  return label;
}

}  // namespace rooflm::report
