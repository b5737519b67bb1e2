// `rooflm completion`: scripts for shells, generated from the commands' declarations.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
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

/// What a shell offers for a value: the words of the type, and those that the command offers.
std::vector<std::string> values_of(const Declared& option) {
  std::vector<std::string> words = choices(option.type);
  for (const std::string& word : option.words) {
    // Blanks and quotes have a meaning in all three shells.
    const bool is_plain = word.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789-_.=@") == std::string::npos;
    if (is_plain && std::ranges::find(words, word) == words.end()) words.push_back(word);
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

std::string joined_ranks() { return fmt::format("{}", fmt::join(kCommandsOfRanks, " ")); }

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

/// Of a positional that has words, for bash.
std::string argument_case(const std::string& command, const std::vector<std::string>& words, bool is_path) {
  if (words.empty()) return "";
  return fmt::format("    '{}') words='{}'; path={} ;;\n", command, joined(words), is_path ? 1 : 0);
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
  std::string arguments;
  for (const DeclaredCommand& command : declared_commands(offer)) {
    std::vector<std::string> names;
    for (const Declared& option : command.options) {
      names.insert(names.end(), option.names.begin(), option.names.end());
      const std::vector<std::string> words = values_of(option);
      if (option.names.empty()) arguments += argument_case(command.name, words, takes_path(option.type));
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
  # launch -n 2 -- COMMAND ...
  if [[ $command == launch ]]; then
    for ((at = 2; at < COMP_CWORD; at++)); do if [[ ${{COMP_WORDS[at]}} == -- ]]; then
      if ((COMP_CWORD == at + 1)); then
        COMPREPLY=($(compgen -W '{}' -- "$cur"))
        return
      fi
      command=${{COMP_WORDS[at + 1]}}
      break
    fi; done
  fi
  # bash splits words at '=': --option = value, --option key = value.
  at=$((COMP_CWORD - 1))
  while ((at > 1)) && [[ ${{COMP_WORDS[at]}} == '=' || (${{COMP_WORDS[at + 1]}} == '=' && ${{COMP_WORDS[at]}} != -*) ]]; do
    ((at--))
  done
  option=${{COMP_WORDS[at]}}
  if [[ $cur == '=' ]]; then cur=''; fi
  case "$command:$option" in
{}    *) if [[ $cur == -* ]]; then case $command in
{}    esac; else path=1; case $command in
{}    esac; fi ;;
  esac
  # The last of a list: fp32,bf16
  if [[ $cur == *,* && -n $words ]]; then before="${{cur%,*}}," cur=${{cur##*,}}; fi
  COMPREPLY=($(compgen -P "$before" -W "$words" -- "$cur"))
  if [[ $path == 1 && -z $before ]]; then
    compopt -o filenames 2>/dev/null
    COMPREPLY+=($(compgen -f -- "$cur"))
  fi
}}
complete -F _rooflm rooflm
)",
                     joined(first_words()), group_names, groups, joined_ranks(), values, options, arguments);
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

/// What _arguments does for a value.
std::string zsh_action(const Declared& option) {
  const std::vector<std::string> words = values_of(option);
  if (words.empty()) return takes_path(option.type) ? "_files" : " ";
  return fmt::format(" _rooflm_{} {}", takes_path(option.type) ? "words_or_files" : "words", joined(words));
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
    bool has_rest = false;  // _arguments takes one rest of arguments: the first positional's
    for (const Declared& option : command.options) {
      const std::string action = zsh_action(option);
      const std::string value =
          option.type.empty() ? "" : fmt::format(":{}:{}", quoted_for_zsh(option.type), action);
      for (const std::string& name : option.names) {
        const bool is_long = name.starts_with("--") && !option.type.empty();
        cases += fmt::format(" \\\n      '*{}{}[{}]{}'", name, is_long ? "=" : "",
                             quoted_for_zsh(option.help), value);
      }
      if (!option.positional.empty() && !std::exchange(has_rest, true)) {
        cases += fmt::format(" \\\n      '*:{}:{}'", quoted_for_zsh(option.positional), action);
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
# The last of a list: fp32,bf16
_rooflm_words() {{
  local -a given=("$@")
  compset -P '*,'
  compadd -a given
}}
_rooflm_words_or_files() {{ _rooflm_words "$@"; _files }}
_rooflm() {{
  local at=${{words[(i)--]}}
  # launch -n 2 -- COMMAND ...
  if [[ $words[2] == launch ]] && ((at < CURRENT)); then
    if ((CURRENT == at + 1)); then compadd {}; return; fi
    words=(rooflm "${{(@)words[at+1,-1]}}")
    ((CURRENT -= at - 1))
  fi
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
                     joined_ranks(), summaries, in_groups, cases);
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
      "# The last of a list: fp32,bf16\n"
      "function __rooflm_list\n"
      "  set -l before (commandline -ct | string replace -r '^--[a-z0-9-]+=' '' | string match -r '^.*,')\n"
      "  for word in $argv; echo \"$before$word\"; end\n"
      "end\n"
      "# launch -n 2 -- COMMAND ...\n"
      "function __rooflm_launched\n"
      "  set -l words (commandline -opc)\n"
      "  set -l at (contains -i -- -- $words); or return\n"
      "  set -e words[1..$at]\n"
      "  if test (count $words) -eq 0; string split ' ' '" +
      joined_ranks() +
      "'; return; end\n"
      "  complete -C \"rooflm $words \"(commandline -ct)\n"
      "end\n"
      "complete -c rooflm -f\n"
      "complete -c rooflm -n '__fish_seen_subcommand_from launch; and contains -- -- (commandline -opc)' "
      "-a '(__rooflm_launched)'\n";
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
      const std::vector<std::string> words = values_of(option);
      if (option.names.empty()) {
        if (takes_path(option.type)) text += fmt::format("complete -c rooflm -n '{}' -F\n", when);
        if (!words.empty()) text += fmt::format("complete -c rooflm -n '{}' -a '{}'\n", when, joined(words));
        continue;
      }
      text += fmt::format("complete -c rooflm -n '{}'", when);
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.type.empty()) text += takes_path(option.type) ? " -r -F" : " -x";
      if (!words.empty()) text += fmt::format(" -a '(__rooflm_list {})'", joined(words));
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
      "The script is generated from the commands' declarations, so it knows all options\n"
      "and their values.\n\n"
      "Example: eval \"$(rooflm completion bash)\", or for all shells to come\n"
      "         rooflm completion bash > ~/.local/share/bash-completion/completions/rooflm");
  return [shell, all_devices] { return write_script(*shell, *all_devices ? Offer::anywhere : Offer::here); };
}

}  // namespace rooflm::cli
