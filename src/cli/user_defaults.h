// Users' defaults for options: configuration files and the environment.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command_line.h"

namespace rooflm::cli {

/// One value of one option.
struct UserDefault {
  std::string command;  ///< "bench", "data prepare"; "" is every command that has the option
  std::string option;   ///< "max-seconds"
  std::string value;    ///< as typed on the command line; of a flag yes or no
  std::string source;   ///< "rooflm.toml:3", "ROOFLM_MAX_SECONDS"

  /// Whether it is meant for the command of that name: `device` above all tables does not reach `plan`.
  [[nodiscard]] bool is_for(const std::string& name) const;
};

/// The name of both files.
inline constexpr const char* kConfigFile = "rooflm.toml";

class UserDefaults {
 public:
  /// Reads $XDG_CONFIG_HOME/rooflm/rooflm.toml (~/.config without it), then rooflm.toml of the working
  /// directory, then the environment: ROOFLM_MAX_SECONDS is --max-seconds. What comes later wins, and of one
  /// place a command's own table over what stands above all tables. Throws core::InputError "FILE:LINE: ..."
  /// for what is no TOML, a key that no option has, a table that is no command, a value that is no value.
  static UserDefaults load();

  /// Gives the options of `line` their values. Throws core::InputError naming the place of a flag's other
  /// texts than yes and no.
  void apply(const std::string& command, CommandLine& line) const;
  /// The source of the value of the option in `message` ("--max-seconds ..."), as a suffix: " (from
  /// rooflm.toml:3)"; "" without one.
  [[nodiscard]] std::string blame(std::string_view message, const std::string& command,
                                  const CommandLine& line) const;

  /// In the order in which they apply.
  [[nodiscard]] const std::vector<UserDefault>& all() const { return all_; }
  /// The files that were looked for, and whether they were there.
  [[nodiscard]] const std::vector<std::pair<std::filesystem::path, bool>>& files() const { return files_; }

 private:
  std::vector<UserDefault> all_;
  std::vector<std::pair<std::filesystem::path, bool>> files_;
};

}  // namespace rooflm::cli
