// The commands of the binary: one file each, one row each in commands.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace rooflm::cli {

/// Runs a command whose options have been parsed; returns the exit code. Throws core::Error and its kind.
using Body = std::function<int()>;

struct Command {
  std::string name;     ///< "bench", or two words: "data prepare"
  std::string summary;  ///< one line of `rooflm --help`
  /// Declares options, positionals and an example (App::footer) and returns what runs with them.
  Body (*declare)(CLI::App& app);
};

/// In the order of `rooflm --help`.
const std::vector<Command>& commands();

Body declare_bench(CLI::App& app);
Body declare_profile(CLI::App& app);
Body declare_study(CLI::App& app);
Body declare_report(CLI::App& app);
Body declare_verify(CLI::App& app);
Body declare_compare(CLI::App& app);
Body declare_program(CLI::App& app);
Body declare_train(CLI::App& app);
Body declare_eval(CLI::App& app);
Body declare_generate(CLI::App& app);
Body declare_peaks(CLI::App& app);
Body declare_attention(CLI::App& app);
Body declare_gemm(CLI::App& app);
Body declare_data_prepare(CLI::App& app);
Body declare_data_info(CLI::App& app);
Body declare_data_tokenize(CLI::App& app);
Body declare_data_decode(CLI::App& app);
Body declare_data_train_tokenizer(CLI::App& app);
Body declare_info(CLI::App& app);

}  // namespace rooflm::cli
