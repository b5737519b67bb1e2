// A study: a sweep, how to measure it, and the views that answer its question.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace rooflm::cli {

/// What a study runs for each configuration of its sweep.
inline constexpr const char* kStudyKinds = "profile|gemm|attention|formats|serving";

/// Parsed from a TOML file (studies/README.md shows the keys).
struct Study {
  std::string name;      ///< of the file, without its ending
  std::string title;     ///< one line
  std::string question;  ///< what it answers, a sentence or two
  std::string kind = "profile";
  std::map<std::string, std::string> options;  ///< "seq" -> "64:512:64": as on the command line
  std::map<std::string, std::string> large;    ///< what --large replaces in `options`
  std::string answer;                          ///< of report::answer_names, "" for none
  std::vector<std::string> views;              ///< of `rooflm report`
  std::vector<std::string> gpu_views;          ///< more of them, where steps of a GPU are traced
  std::string where;                           ///< the file, for messages
  std::map<std::string, int> lines;  ///< "views", "options", "options.seq", "large.seq": where they stand
};

/// Throws core::InputError "FILE:LINE: ..." naming the key and what is known, for a file that is missing, no
/// TOML, or holds a key or a type that a study does not have.
Study read_study(const std::filesystem::path& path);
Study parse_study(std::string_view text, const std::string& name, const std::string& where);

/// Options that a study may set, without dashes.
std::vector<std::string> study_options();

/// What a study's own settings are after options were applied.
struct TakenOptions {
  std::map<std::string, std::string> tables;  ///< option -> its table: those that were not typed
  bool some_typed = false;
};
/// Throws what `error`, which came up with the values of `study`, means to its author: core::InputError
/// "FILE:LINE: key: ..." where it names an option of the study that holds, or no option at all and nothing
/// was typed; otherwise `error` itself.
[[noreturn]] void blame(const Study& study, const TakenOptions& taken, const core::UsageError& error);
/// Throws core::InputError "FILE:LINE: ..." for a view that does not exist.
void check_views(const Study& study);

/// The studies that are compiled in, in the order of their names.
std::vector<Study> shipped_studies();
/// A shipped study by name, or a file when `name` ends in .toml. Throws core::UsageError with a suggestion.
Study find_study(const std::string& name);

}  // namespace rooflm::cli
