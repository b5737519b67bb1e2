// `rooflm completion`: scripts for shells, generated from the commands' declarations.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/output.h"
#include "core/error.h"
#include "core/names.h"

namespace rooflm::cli {
namespace {

struct DeclaredCommand {
  std::string name;
  std::string summary;
  std::vector<Declared> options;
};

std::vector<DeclaredCommand> declared_commands(Offer offer) {
  std::vector<DeclaredCommand> all;
  for (const Command& command : commands()) {
    CommandLine line(command.name, command.summary, offer);
    CommonOptions common;
    (void)declare(command, line, common);
    all.push_back({command.name, command.summary, line.declared()});
  }
  return all;
}

/// The words of a type that lists them all: "eager|fused", and "table|md"; none for "N", "FILE" or
/// "cpu|cuda[:N]", of which only whole words are kept.
std::vector<std::string> choices(std::string_view type) {
  std::vector<std::string> words;
  if (type.find('|') == std::string_view::npos) return words;
  while (!type.empty()) {
    const auto bar = type.find('|');
    const std::string_view word = type.substr(0, type.find_first_of("|[:"));
    // Words in capitals stand for values: NAME, DIR.
    if (!word.empty() &&
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") == std::string_view::npos) {
      words.emplace_back(word);
    }
    if (bar == std::string_view::npos) break;
    type.remove_prefix(bar + 1);
  }
  return words;
}

bool takes_path(std::string_view type) {
  for (const std::string_view kind : {"FILE", "DIR", "PATH", "SHARD"}) {
    if (type.find(kind) != std::string_view::npos) return true;
  }
  return false;
}

std::string joined(const std::vector<std::string>& words, std::string_view separator = " ") {
  return fmt::format("{}", fmt::join(words, separator));
}

/// First words of the commands, and the second ones of those that have two.
std::vector<std::string> first_words() {
  std::vector<std::string> words;
  for (const Command& command : commands()) {
    const std::string word = command.name.substr(0, command.name.find(' '));
    if (words.empty() || words.back() != word) words.push_back(word);
  }
  return words;
}
std::map<std::string, std::vector<std::string>> second_words() {
  std::map<std::string, std::vector<std::string>> words;
  for (const Command& command : commands()) {
    const auto space = command.name.find(' ');
    if (space != std::string::npos) {
      words[command.name.substr(0, space)].push_back(command.name.substr(space + 1));
    }
  }
  return words;
}

std::string bash(Offer offer) {
  std::string groups;
  std::string group_names;
  for (const auto& [group, words] : second_words()) {
    groups += fmt::format("      {}) words='{}' ;;\n", group, joined(words));
    group_names += (group_names.empty() ? "" : "|") + group;
  }
  std::string options;
  std::string values;
  for (const DeclaredCommand& command : declared_commands(offer)) {
    std::vector<std::string> names;
    for (const Declared& option : command.options) {
      names.insert(names.end(), option.names.begin(), option.names.end());
      const std::vector<std::string> words = choices(option.type);
      if (option.names.empty() || option.type.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names)
        patterns.push_back(fmt::format("'{}:{}'", command.name, name));
      // A value without a list of words and without a path, such as a number, has no completion.
      values += fmt::format("    {}) words='{}'; path={} ;;\n", joined(patterns, "|"), joined(words),
                            takes_path(option.type) ? 1 : 0);
    }
    options += fmt::format("    '{}') words='{}' ;;\n", command.name, joined(names));
  }
  return fmt::format(R"(# bash completion of rooflm, made by `rooflm completion bash`.
# Once: rooflm completion bash > ~/.local/share/bash-completion/completions/rooflm
_rooflm() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} words='' path='' at=1 command=${{COMP_WORDS[1]}} option='' before=''
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '{} --help --version' -- "$cur"))
    return
  fi
  case $command in {})
    if ((COMP_CWORD == 2)); then
      case $command in
{}      esac
      COMPREPLY=($(compgen -W "$words --help" -- "$cur"))
      return
    fi
    command="$command ${{COMP_WORDS[2]}}" ;;
  esac
  # bash splits words at '=': --option = value.
  if [[ $cur == '=' ]]; then cur='' option=${{COMP_WORDS[COMP_CWORD - 1]}}
  elif [[ ${{COMP_WORDS[COMP_CWORD - 1]}} == '=' ]]; then option=${{COMP_WORDS[COMP_CWORD - 2]}}
  else option=${{COMP_WORDS[COMP_CWORD - 1]}}; fi
  case "$command:$option" in
{}    *) if [[ $cur == -* ]]; then case $command in
{}    esac; else path=1; fi ;;
  esac
  # The last of a list: fp32,bf16
  if [[ $cur == *,* && $path != 1 ]]; then before="${{cur%,*}}," cur=${{cur##*,}}; fi
  COMPREPLY=($(compgen -P "$before" -W "$words" -- "$cur"))
  if [[ $path == 1 ]]; then
    compopt -o filenames 2>/dev/null
    COMPREPLY+=($(compgen -f -- "$cur"))
  fi
}}
complete -F _rooflm rooflm
)",
                     joined(first_words()), group_names, groups, values, options);
}

/// For zsh inside single quotes and brackets.
std::string quoted_for_zsh(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c == '\n' ? ' ' : c;
    }
  }
  return out;
}

std::string zsh(Offer offer) {
  std::string summaries;
  std::string cases;
  const auto groups = second_words();
  for (const auto& [group, words] : groups) {
    summaries += fmt::format("    '{}:{}'\n", group, joined(words, ", "));
  }
  for (const DeclaredCommand& command : declared_commands(offer)) {
    if (command.name.find(' ') == std::string::npos) {
      summaries += fmt::format("    '{}:{}'\n", command.name, quoted_for_zsh(command.summary));
    }
    cases += fmt::format("    '{}') _arguments -s", command.name);
    for (const Declared& option : command.options) {
      const std::vector<std::string> words = choices(option.type);
      const std::string action = !words.empty() ? fmt::format("_values -s , value {}", joined(words))
                                 : takes_path(option.type) ? "_files"
                                                           : " ";
      const std::string value =
          option.type.empty() ? "" : fmt::format(":{}:{}", quoted_for_zsh(option.type), action);
      for (const std::string& name : option.names) {
        const bool is_long = name.starts_with("--") && !option.type.empty();
        cases += fmt::format(" \\\n      '*{}{}[{}]{}'", name, is_long ? "=" : "",
                             quoted_for_zsh(option.help), value);
      }
      if (!option.positional.empty()) {
        cases += fmt::format(" \\\n      '*:{}:{}'", quoted_for_zsh(option.positional),
                             takes_path(option.type) ? "_files" : " ");
      }
    }
    cases += " ;;\n";
  }
  std::string in_groups;
  for (const auto& [group, words] : groups) {
    in_groups += fmt::format(
        "  if [[ $words[2] == {0} ]]; then\n"
        "    if ((CURRENT == 3)); then _values '{0} command' {1}; return; fi\n"
        "    command=\"{0} $words[3]\"; shift words; ((CURRENT--))\n  fi\n",
        group, joined(words));
  }
  return fmt::format(R"(#compdef rooflm
# zsh completion of rooflm, made by `rooflm completion zsh`.
# Once: rooflm completion zsh > a folder of $fpath, as _rooflm
_rooflm() {{
  local command=$words[2]
  local -a summaries=(
{}  )
  if ((CURRENT == 2)); then _describe command summaries; return; fi
{}  shift words; ((CURRENT--))
  case $command in
{}  esac
}}
_rooflm "$@"
)",
                     summaries, in_groups, cases);
}

std::string quoted_for_fish(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string fish(Offer offer) {
  const auto groups = second_words();
  std::string text =
      "# fish completion of rooflm, made by `rooflm completion fish`.\n"
      "# Once: rooflm completion fish > ~/.config/fish/completions/rooflm.fish\n"
      "complete -c rooflm -f\n";
  for (const auto& [group, words] : groups) {
    text += fmt::format("complete -c rooflm -n __fish_use_subcommand -a {} -d '{}'\n", group,
                        joined(words, ", "));
  }
  for (const DeclaredCommand& command : declared_commands(offer)) {
    const auto space = command.name.find(' ');
    const std::string first = command.name.substr(0, space);
    std::string when = "__fish_seen_subcommand_from " + first;
    const std::string summary = quoted_for_fish(command.summary);
    if (space == std::string::npos) {
      text += fmt::format("complete -c rooflm -n __fish_use_subcommand -a {} -d '{}'\n", first, summary);
    } else {
      const std::string second = command.name.substr(space + 1);
      text +=
          fmt::format("complete -c rooflm -n '{}; and not __fish_seen_subcommand_from {}' -a {} -d '{}'\n",
                      when, joined(groups.at(first)), second, summary);
      when += "; and __fish_seen_subcommand_from " + second;
    }
    for (const Declared& option : command.options) {
      const std::vector<std::string> words = choices(option.type);
      if (option.names.empty()) {
        if (takes_path(option.type)) text += fmt::format("complete -c rooflm -n '{}' -F\n", when);
        continue;
      }
      text += fmt::format("complete -c rooflm -n '{}'", when);
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.type.empty()) text += takes_path(option.type) ? " -r -F" : " -x";
      if (!words.empty()) text += fmt::format(" -a '{}'", joined(words));
      text += fmt::format(" -d '{}'\n", quoted_for_fish(option.help));
    }
  }
  return text;
}

int write_script(const std::string& shell, Offer offer) {
  if (shell == "bash") {
    write_out(bash(offer));
  } else if (shell == "zsh") {
    write_out(zsh(offer));
  } else if (shell == "fish") {
    write_out(fish(offer));
  } else {
    const std::vector<std::string> known{"bash", "zsh", "fish"};
    throw core::UsageError(core::unknown_name("shell", shell, known));
  }
  return 0;
}

}  // namespace

Body declare_completion(CommandLine& line) {
  auto shell = std::make_shared<std::string>();
  line.add_option("shell", *shell, "Shell to write a script for").type_name("bash|zsh|fish").required();
  auto all_devices = std::make_shared<bool>(false);
  line.add_flag("--all-devices", *all_devices,
                "Also offer dtypes of devices that are not here, for packages");
  line.footer(
      "The script is generated from the commands' declarations, so it knows all options and their values.\n\n"
      "Example: rooflm completion bash > ~/.local/share/bash-completion/completions/rooflm");
  return [shell, all_devices] { return write_script(*shell, *all_devices ? Offer::anywhere : Offer::here); };
}

}  // namespace rooflm::cli
