// What `rooflm study` was given: options of a run, of measuring and of single ops.
#pragma once

#include <map>
#include <string>

#include "cli/options/config_options.h"
#include "cli/options/profile_options.h"
#include "cli/study_file.h"

namespace rooflm::cli {

/// Everything empty: what is typed replaces what the study says.
struct StudyOptions {
  std::string name;
  bool large = false, all = false;
  std::map<std::string, std::string> standing;  ///< of configuration files: they stand behind the study
  ConfigOptions config;
  ProfileOptions profile;
  OutputOptions output;
  std::map<std::string, std::string> others;  ///< of single ops and of serving, by name without dashes

  StudyOptions();
  /// What an option of a study file stands for, by its name without dashes.
  [[nodiscard]] std::string get(const std::string& option);
  void set(const std::string& option, const std::string& value);
  /// Fills what is empty: what was typed wins over the study, the study over the defaults of the options.
  TakenOptions fill(const Study& study);

 private:
  std::string* other(const std::string& option);
};

}  // namespace rooflm::cli
