// Users' defaults for options: configuration files and the environment.
#include "cli/user_defaults.h"

#include <fmt/format.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>
#include <system_error>

#include "cli/commands.h"
#include "cli/former_names.h"
#include "core/error.h"
#include "core/names.h"
#include "core/printable.h"
#include "core/text_input.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = 1U << 20U;
constexpr std::string_view kPrefix = "ROOFLM_";

/// The options of every command: "bench" -> {"steps", ...}.
using Known = std::map<std::string, std::set<std::string>>;

Known known_options() {
  Known known;
  for (const Command& command : commands()) {
    CommandLine line(command.name, command.summary);
    CommonOptions common;
    (void)declare(command, line, common);
    for (const Declared& option : line.declared()) {
      for (const std::string& name : option.names) {
        if (name.starts_with("--") && name != "--help") known[command.name].insert(name.substr(2));
      }
    }
  }
  return known;
}

/// Reads one file, and says where it is wrong.
class Reader {
 public:
  Reader(const fs::path& path, const Known& known) : where_(path.string()), known_(known) {
    try {
      table_ = toml::parse(core::read_text(path, kMostBytes));
    } catch (const toml::parse_error& error) {
      fail(error.source().begin.line, core::printable(error.description(), 2 * core::kMostShown));
    }
  }

  std::vector<UserDefault> values() {
    std::vector<UserDefault> values;
    std::set<std::string> all;
    for (const auto& [command, options] : known_) all.insert(options.begin(), options.end());
    for (const auto& [key, node] : table_) {
      if (!node.is_table()) values.push_back(value_of("", all, key, node));
    }
    for (const auto& [key, node] : table_) {
      if (!node.is_table()) continue;
      const auto command = known_.find(std::string(key.str()));
      if (command == known_.end()) {
        std::vector<std::string> names;
        for (const auto& [name, options] : known_) names.push_back(name);
        fail(key.source().begin.line, core::unknown_name("command", key.str(), names));
      }
      for (const auto& [option, value] : *node.as_table()) {
        values.push_back(value_of(command->first, command->second, option, value));
      }
    }
    return values;
  }

 private:
  [[noreturn]] void fail(std::uint32_t line, const std::string& message) const {
    throw core::InputError(fmt::format("{}:{}: {}", where_, line, message));
  }

  UserDefault value_of(const std::string& command, const std::set<std::string>& known, const toml::key& key,
                       const toml::node& node) const {
    const std::string name = present_name(std::string(key.str()));
    const std::uint32_t line = key.source().begin.line;
    if (!known.contains(name)) {
      fail(line, core::unknown_name("option", name, std::vector<std::string>(known.begin(), known.end())));
    }
    return {.command = command,
            .option = name,
            .value = text_of(name, node),
            .source = fmt::format("{}:{}", where_, line)};
  }

  /// As typed on the command line.
  std::string text_of(const std::string& name, const toml::node& node) const {
    if (node.is_string()) return node.as_string()->get();
    if (node.is_integer()) return fmt::format("{}", node.as_integer()->get());
    if (node.is_floating_point()) return fmt::format("{}", node.as_floating_point()->get());
    if (node.is_boolean()) return node.as_boolean()->get() ? "yes" : "no";
    const toml::array* list = node.as_array();
    if (list == nullptr || list->empty()) {
      fail(node.source().begin.line,
           fmt::format("'{}' must be a string, a number, true, false, or a list of them", name));
    }
    std::string text;
    for (const toml::node& item : *list) {
      if (item.is_array()) fail(item.source().begin.line, fmt::format("'{}' must be a flat list", name));
      text += (text.empty() ? "" : ",") + text_of(name, item);
    }
    return text;
  }

  std::string where_;
  const Known& known_;
  toml::table table_;
};

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::vector<fs::path> places() {
  std::vector<fs::path> all;
  if (const std::string xdg = variable("XDG_CONFIG_HOME"); !xdg.empty()) {
    all.push_back(fs::path(xdg) / "rooflm" / kConfigFile);
  } else if (const std::string home = variable("HOME"); !home.empty()) {
    all.push_back(fs::path(home) / ".config" / "rooflm" / kConfigFile);
  }
  all.emplace_back(kConfigFile);
  return all;
}

/// "ROOFLM_MAX_SECONDS=5" as the option max-seconds; nothing for other variables.
std::vector<std::pair<std::string, std::string>> variables() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    std::string option(text.substr(kPrefix.size(), equals - kPrefix.size()));
    for (char& c : option)
      c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    found.emplace_back(std::move(option), text.substr(equals + 1));
  }
  std::ranges::sort(found);
  return found;
}

std::string variable_name(const std::string& option) {
  std::string name(kPrefix);
  for (const char c : option)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

}  // namespace

UserDefaults UserDefaults::load() {
  UserDefaults defaults;
  bool is_any = false;
  for (const fs::path& path : places()) {
    std::error_code ignored;
    defaults.files_.emplace_back(path, fs::exists(path, ignored));
    is_any = is_any || defaults.files_.back().second;
  }
  const auto set = variables();
  if (!is_any && set.empty()) return defaults;
  const Known known = known_options();
  for (const auto& [path, exists] : defaults.files_) {
    if (!exists) continue;
    const auto values = Reader(path, known).values();
    defaults.all_.insert(defaults.all_.end(), values.begin(), values.end());
  }
  for (const auto& [option, value] : set) {
    const std::string name = present_name(option);
    const auto has_it = [&name](const auto& command) { return command.second.contains(name); };
    if (std::ranges::none_of(known, has_it)) continue;
    defaults.all_.push_back({.command = "", .option = name, .value = value, .source = variable_name(option)});
  }
  return defaults;
}

bool UserDefault::is_for(const std::string& name) const {
  if (!command.empty()) return command == name;
  // Elsewhere a device of this machine, there one of the catalog.
  return !(name == "plan" && option == "device");
}

void UserDefaults::apply(const std::string& command, CommandLine& line) const {
  for (const UserDefault& value : all_) {
    if (!value.is_for(command)) continue;
    try {
      line.set_default(value.option, value.value);
    } catch (const core::UsageError& error) {
      throw core::InputError(fmt::format("{}: {}", value.source, error.what()));
    }
  }
}

std::string UserDefaults::blame(std::string_view message, const std::string& command,
                                const CommandLine& line) const {
  std::string source;
  for (const UserDefault& value : all_) {
    if (!value.is_for(command)) continue;
    const std::string option = "--" + value.option;
    if (!line.has_default(value.option) || line.was_given(option)) continue;
    // "--batch must be ...", "unknown dtype 'bf17'"
    const auto at = message.find(option);
    const auto end = at == std::string_view::npos ? at : at + option.size();
    const bool is_named = end != std::string_view::npos && (end == message.size() || message[end] == ' ' ||
                                                            message[end] == ',' || message[end] == ':');
    if (is_named || message.find(fmt::format("'{}'", value.value)) != std::string_view::npos)
      source = fmt::format(" (from {})", value.source);
  }
  return source;
}

}  // namespace rooflm::cli
