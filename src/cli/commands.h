// The commands of the binary: one file each, one row each in commands.cpp.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "cli/command_line.h"

namespace rooflm::cli {

/// Runs a command whose options have been parsed; returns the exit code. Throws core::Error and its kind.
using Body = std::function<int()>;

struct Command {
  std::string name;     ///< "bench", or two words: "data prepare"
  std::string summary;  ///< one line of `rooflm --help`
  /// Declares options, positionals and an example (CommandLine::footer) and returns what runs with them.
  Body (*declare)(CommandLine& line);
};

/// Commands that stand together in `rooflm --help`.
struct CommandGroup {
  std::string title;
  std::vector<Command> commands;
};
const std::vector<CommandGroup>& command_groups();
/// All of them, in that order.
const std::vector<Command>& commands();

/// Commands whose ranks work together: `launch` starts them.
inline constexpr std::array<const char*, 6> kCommandsOfRanks = {"bench", "profile",  "train",
                                                                "eval",  "generate", "comm"};

/// Options of every command besides its own.
struct CommonOptions {
  bool quiet = false;    ///< -q
  bool verbose = false;  ///< -v
};
/// Declares the command's options and, last, those that all have; `common` must live as long as `line`.
Body declare(const Command& command, CommandLine& line, CommonOptions& common);

/// What the exit codes mean, for help and manual pages.
inline constexpr const char* kExitCodes =
    "Exit codes: 0 done, 1 a check failed, 2 usage, 3 bad input, 4 out of memory,\n"
    "5 not available here, 70 an error in rooflm itself, 130 and 143 stopped by\n"
    "SIGINT (Ctrl-C) and SIGTERM.\n";

Body declare_bench(CommandLine& line);
Body declare_profile(CommandLine& line);
Body declare_study(CommandLine& line);
Body declare_record(CommandLine& line);
Body declare_report(CommandLine& line);
Body declare_view(CommandLine& line);
Body declare_export(CommandLine& line);
Body declare_import(CommandLine& line);
Body declare_verify(CommandLine& line);
Body declare_compare(CommandLine& line);
Body declare_plan(CommandLine& line);
Body declare_program(CommandLine& line);
Body declare_launch(CommandLine& line);
Body declare_train(CommandLine& line);
Body declare_eval(CommandLine& line);
Body declare_quantize(CommandLine& line);
Body declare_generate(CommandLine& line);
Body declare_serve(CommandLine& line);
Body declare_bench_serve(CommandLine& line);
Body declare_peaks(CommandLine& line);
Body declare_attention(CommandLine& line);
Body declare_gemm(CommandLine& line);
Body declare_comm(CommandLine& line);
Body declare_data_prepare(CommandLine& line);
Body declare_data_info(CommandLine& line);
Body declare_data_tokenize(CommandLine& line);
Body declare_data_decode(CommandLine& line);
Body declare_data_train_tokenizer(CommandLine& line);
Body declare_info(CommandLine& line);
Body declare_completion(CommandLine& line);
Body declare_man(CommandLine& line);

}  // namespace rooflm::cli
