// A study: a sweep, how to measure it, and the views that answer its question.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::cli {

/// What a study runs for each configuration of its sweep.
inline constexpr const char* kStudyKinds = "profile|gemm|attention|formats";

/// Parsed from a TOML file (studies/README.md shows the keys).
struct Study {
  std::string name;      ///< of the file, without its ending
  std::string title;     ///< one line
  std::string question;  ///< what it answers, a sentence or two
  std::string kind = "profile";
  std::map<std::string, std::string> options;  ///< "seq" -> "64:512:64": as on the command line
  std::map<std::string, std::string> large;    ///< what --large replaces in `options`
  std::vector<std::string> views;              ///< of `rooflm report`
};

/// Throws core::InputError "FILE:LINE: ..." naming the key and what is known, for a file that is missing, no
/// TOML, or holds a key or a type that a study does not have.
Study read_study(const std::filesystem::path& path);
Study parse_study(std::string_view text, const std::string& name, const std::string& where);

/// The studies that are compiled in, in the order of their names.
std::vector<Study> shipped_studies();
/// A shipped study by name, or a file when `name` ends in .toml. Throws core::UsageError with a suggestion.
Study find_study(const std::string& name);

}  // namespace rooflm::cli
