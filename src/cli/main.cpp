// The binary `rooflm`: finds the command, parses its options, runs it, turns exceptions into exit codes.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/user_defaults.h"
#include "core/error.h"
#include "core/names.h"
#include "core/printable.h"
#include "core/stop_signals.h"
#include "core/system/process.h"
#include "core/system/terminal.h"
#include "core/text_fit.h"
#include "core/units.h"
#include "lab/model_file.h"
#include "ranks/last_words.h"
#include "ranks/speaker.h"

namespace rooflm::cli {
namespace {

/// Exit code for what should not happen (EX_SOFTWARE of sysexits.h).
constexpr int kInternalError = 70;

std::string help_text() {
  std::string text =
      "rooflm runs, profiles, prices, plans and scales training and inference of\n"
      "language models.\n\n"
      "Usage: rooflm COMMAND [OPTIONS]\n";
  for (const CommandGroup& group : command_groups()) {
    text += fmt::format("\n{}:\n", group.title);
    for (const Command& command : group.commands)
      text += fmt::format("  {:<22}{}\n", command.name, command.summary);
  }
  text += "\n`rooflm COMMAND --help` shows its options with units, defaults and an example.\n";
  text += "`rooflm --version` prints the version.\n\n";
  return text + kExitCodes;
}

/// Help for the commands that share a first word ("data").
int print_group_help(const std::string& group) {
  std::string text = fmt::format("Usage: rooflm {} COMMAND [OPTIONS]\n\nCommands:\n", group);
  for (const Command& command : commands()) {
    if (command.name.starts_with(group + " ")) {
      text += fmt::format("  {:<22}{}\n", command.name, command.summary);
    }
  }
  write_text(text);
  return 0;
}

bool is_help(const std::string& word) { return word == "--help" || word == "-h" || word == "help"; }

/// The command that the first words name, and how many they are. A null command means that the help of a
/// group was asked for.
std::pair<const Command*, std::size_t> find_command(const std::vector<std::string>& words) {
  std::vector<std::string> first_words;
  std::vector<std::string> in_group;
  for (const Command& command : commands()) {
    const auto space = command.name.find(' ');
    const std::string first = command.name.substr(0, space);
    if (first_words.empty() || first_words.back() != first) first_words.push_back(first);
    if (first != words[0]) continue;
    if (space == std::string::npos) return {&command, 1};
    in_group.push_back(command.name.substr(space + 1));
    if (words.size() > 1 && words[1] == in_group.back()) return {&command, 2};
  }
  if (in_group.empty()) throw core::UsageError(core::unknown_name("command", words[0], first_words));
  if (words.size() < 2 || is_help(words[1])) return {nullptr, 1};
  throw core::UsageError(core::unknown_name(words[0] + " command", words[1], in_group));
}

/// Where values of options came from that were not typed.
void say_defaults(const Command& command, const CommandLine& line, const UserDefaults& defaults) {
  for (const UserDefault& value : defaults.all()) {
    if (!value.is_for(command.name)) continue;
    if (line.has_default(value.option) && !line.was_given("--" + value.option)) {
      detail("--{} {}: from {}", value.option, value.value, value.source);
    }
  }
}

/// Once a command, whatever reads the model and however often.
void say_presets(const CommandLine& line) {
  for (const std::string& model : line.names_of_models()) {
    if (lab::has_namesake(model))
      note("--model {} is the preset; the directory of that name is ./{}", model, model);
  }
}

int run_command(const Command& command, const std::vector<std::string>& arguments) {
  const auto start = std::chrono::steady_clock::now();
  CommandLine line(command.name, command.summary);
  CommonOptions common;
  const Body body = declare(command, line, common);
  const UserDefaults defaults = UserDefaults::load();
  defaults.apply(command.name, line);
  if (!line.parse(arguments)) return static_cast<int>(core::ExitCode::done);
  if (common.quiet && common.verbose) throw core::UsageError("-q and -v contradict each other");
  lab::set_talk(common.quiet ? lab::Talk::quiet : common.verbose ? lab::Talk::verbose : lab::Talk::normal);
  say_defaults(command, line, defaults);
  say_presets(line);
  try {
    const int code = body();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    detail("{}: {}", command.name, core::format_seconds(elapsed.count()));
    return code;
  } catch (const core::UsageError& error) {
    const std::string source = defaults.blame(error.what(), command.name, line);
    if (source.empty()) throw;
    throw core::InputError(error.what() + source);
  }
}

int run(const std::vector<std::string>& words) {
  if (words.empty()) {
    write_message(help_text());
    return static_cast<int>(core::ExitCode::usage);
  }
  if (words.size() == 1 && is_help(words[0])) {
    write_text(help_text());
    return 0;
  }
  if (words[0] == "--version") {
    write_out("rooflm " ROOFLM_VERSION "\n");
    return 0;
  }
  // `rooflm help bench` is `rooflm bench --help`.
  std::vector<std::string> sought = words;
  if (is_help(words[0])) {
    sought.erase(sought.begin());
    sought.emplace_back("--help");
  }
  const auto [command, count] = find_command(sought);
  if (command == nullptr) return print_group_help(sought[0]);
  return run_command(*command, {sought.begin() + static_cast<std::ptrdiff_t>(count), sought.end()});
}

/// "rank 1 (node7)" where there are others; "" alone.
std::string who_of_several() {
  try {
    const ranks::Place place = ranks::find_place();
    return place.size > 1 ? fmt::format("rank {} ({})", place.rank, ranks::host_name()) : "";
  } catch (const core::UsageError&) {
    return {};
  }
}

/// Set once, before anything else is done, so that saying it takes no memory. Empty before that.
std::string& who() {
  static std::string name;
  return name;
}

constexpr std::string_view kPrefix = "rooflm: ";
const char* prefix() { return coloured_errors() ? "\x1b[1;31mrooflm:\x1b[0m " : kPrefix.data(); }

/// A long message (all names of an index) without its middle: the place is at its begin, what to do at its
/// end.
std::string without_middle(std::string_view message) {
  constexpr std::size_t kBegin = 900;
  constexpr std::size_t kEnd = 300;
  const auto is_within = [&](std::size_t at) {
    return (static_cast<unsigned char>(message[at]) & 0xC0U) == 0x80U;
  };
  if (message.size() <= kBegin + 2 * kEnd) return std::string(message);
  std::size_t begin = kBegin;
  std::size_t end = message.size() - kEnd;
  while (is_within(begin)) --begin;
  while (is_within(end) && end + 1 < message.size()) ++end;
  return fmt::format("{} ... ({} characters are left out) ... {}", message.substr(0, begin), end - begin,
                     message.substr(end));
}

/// One line but for the width of a terminal, whatever the names of files and the texts in the message hold.
/// Of ranks of launch it is launch that says it, once for all that fail.
int fail(std::string_view message, int code) {
  std::string text = core::printable(without_middle(message), core::kUnlimited);
  if (!text.starts_with(who())) text = fmt::format("{}: {}", who(), text);
  std::fflush(stdout);
  if (!who().empty() && ranks::tell_launch({text})) return code;
  std::string shown = core::wrap_lines(fmt::format("{}{}\n", kPrefix, text), core::terminal_width(stderr));
  std::fputs(shown.replace(0, kPrefix.size(), prefix()).c_str(), stderr);
  return code;
}

/// The same without an allocation.
int fail_without_memory() {
  std::fflush(stdout);
  if (!who().empty() && ranks::tell_launch({who(), ": out of memory"}))
    return static_cast<int>(core::ExitCode::out_of_memory);
  for (const char* part : {prefix(), who().c_str(), who().empty() ? "" : ": ", "out of memory\n"})
    std::fputs(part, stderr);
  return static_cast<int>(core::ExitCode::out_of_memory);
}

// Static, because these handlers have no argument.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::terminate_handler g_usual_end = nullptr;
std::atomic<bool> g_memory_ran_out = false;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

[[noreturn]] void note_no_memory() {
  g_memory_ran_out = true;
  throw std::bad_alloc();
}

/// Too little memory ends in its line and exit code also where nobody can catch it: in a thread of a team, in
/// the statics of a library, in a function that is noexcept and allocates (libstdc++, oneDNN).
[[noreturn]] void end_uncaught() {
  bool is_memory = g_memory_ran_out;  // out of a noexcept function no exception comes along
  if (std::current_exception() != nullptr) {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      is_memory = true;
    } catch (...) {
      is_memory = false;
    }
  }
  if (is_memory) ::_exit(fail_without_memory());
  g_usual_end();  // says what it was
  std::abort();
}

void take_uncaught() {
  g_usual_end = std::set_terminate(end_uncaught);
  std::set_new_handler(note_no_memory);
}

int run_and_report(const std::vector<std::string>& words) {
  try {
    const int code = run(words);
    flush_out();
    return code;
  } catch (const OutputClosed&) {
    return 0;
  } catch (const core::Stopped& stopped) {
    return fail(fmt::format("stopped by {}", stopped.signal == SIGINT ? "SIGINT" : "SIGTERM"),
                core::stopped_code(stopped.signal));
  } catch (const ranks::RankLost& error) {
    // The rank that writes ends when nobody reads any more, which is no error of the others either. One that
    // was asked to stop may leave others in the middle of a step, which were asked, too.
    if (is_output_closed()) ::_exit(0);
    const int signal = core::StopSignals::received();
    const int code = signal != 0 ? core::stopped_code(signal) : static_cast<int>(error.code());
    const bool is_told = dynamic_cast<const ranks::ToldByAnother*>(&error) != nullptr;
    return is_told ? code : fail(error.what(), code);
  } catch (const core::Error& error) {
    return fail(error.what(), static_cast<int>(error.code()));
  } catch (const std::bad_alloc&) {
    return fail_without_memory();
  } catch (const std::filesystem::filesystem_error& error) {
    if (error.code() == std::errc::not_enough_memory) return fail_without_memory();
    // A path that cannot be looked at: a folder without permission, a loop of links, a name that is too long.
    return fail(fmt::format("cannot access '{}': {}", error.path1().string(), error.code().message()),
                static_cast<int>(core::ExitCode::bad_input));
  } catch (const std::system_error& error) {
    const bool starts_no_thread = error.code() == std::errc::resource_unavailable_try_again;
    if (!starts_no_thread) return fail(fmt::format("internal error: {}", error.what()), kInternalError);
    return fail("out of memory: the system cannot start another thread for this process (ulimit -u, -v)",
                static_cast<int>(core::ExitCode::out_of_memory));
  } catch (const std::exception& error) {
    return fail(fmt::format("internal error: {}", error.what()), kInternalError);
  }
}

// Called before the statics of any library are made.
[[gnu::section(".preinit_array"), gnu::used]] void (*const kFirst)() = take_uncaught;

}  // namespace
}  // namespace rooflm::cli

int main(int argc, char** argv) {
  rooflm::core::prepare_process();
  rooflm::cli::who() = rooflm::cli::who_of_several();
  const int code = rooflm::cli::run_and_report(std::vector<std::string>(argv + 1, argv + argc));
  // Threads of libraries may wait for ranks that are gone for as long as anybody waits for them.
  if (code != 0 && !rooflm::cli::who().empty()) {
    std::fflush(nullptr);
    ::_exit(code);
  }
  return code;
}
