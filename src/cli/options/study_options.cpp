// What `rooflm study` was given, and what the study says.
#include "cli/options/study_options.h"

#include "cli/options/serving_options.h"
#include "record/config.h"

namespace rooflm::cli {

StudyOptions::StudyOptions() {
  config.clear();
  for (const char* single : {"n", "count", "strategy", "window"}) others[single] = "";
  for (const auto& [option, help] : serving_options()) others[option] = "";
}

std::string StudyOptions::get(const std::string& option) {
  if (const record::Field* field = record::find_option("--" + option)) return config.text(field->key);
  return *other(option);
}

void StudyOptions::set(const std::string& option, const std::string& value) {
  if (const record::Field* field = record::find_option("--" + option)) {
    config.set(field->key, value);
  } else {
    *other(option) = value;
  }
}

std::string* StudyOptions::other(const std::string& option) {
  const std::map<std::string, std::string*> measuring = {{"steps", &profile.stopping.steps},
                                                         {"min-steps", &profile.stopping.min_steps},
                                                         {"max-steps", &profile.stopping.max_steps},
                                                         {"memory-limit", &profile.memory_limit},
                                                         {"max-seconds", &profile.stopping.max_seconds},
                                                         {"precision", &profile.stopping.precision}};
  const auto found = measuring.find(option);
  return found == measuring.end() ? &others.at(option) : found->second;
}

TakenOptions StudyOptions::fill(const Study& study) {
  TakenOptions taken;
  for (const std::string& option : study_options()) {
    if (!get(option).empty()) taken.some_typed = true;
  }
  const auto take = [&](const char* table, const std::map<std::string, std::string>& from) {
    const bool has_steps = !get("steps").empty();
    const bool has_limits = !(get("precision") + get("min-steps") + get("max-steps")).empty();
    for (const auto& [option, value] : from) {
      // Who says how many steps says all about it.
      const bool is_of_steps = option == "precision" || option == "min-steps" || option == "max-steps";
      if (!get(option).empty() || (has_steps && is_of_steps) || (has_limits && option == "steps")) continue;
      if (taken.tables.contains(option)) continue;  // "" in [large]: the default of the option
      set(option, value);
      taken.tables[option] = table;
    }
  };
  if (large) take("large", study.large);
  take("options", study.options);
  for (const auto& [option, value] : standing) {
    if (get(option).empty()) set(option, value);
  }
  return taken;
}

}  // namespace rooflm::cli
