// rooflm generate: text from a model.
#include <algorithm>
#include <chrono>
#include <memory>

#include "cli/commands.h"
#include "cli/inference_options.h"
#include "cli/output.h"
#include "cli/values.h"
#include "core/error.h"
#include "text/tokenizer.h"
#include "train/checkpoint.h"
#include "train/generate.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

struct GenerateOptions {
  InferenceOptions inference;
  std::string prompt;
  std::string tokenizer;
  std::string tokens = "100";
  std::string temperature = "0.8";
  std::string top_k = "0";
  std::string top_p = "1";
  std::string seed = "0";
  std::string window;
  bool ignore_eot = false;
};

/// The length that a checkpoint was trained with: longer texts are new to it. 0 when unknown.
std::int64_t trained_seq(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::exists(directory / "state.json", ignored)) return 0;
  const auto state = train::read_checkpoint_state(directory);
  const auto found = state.options.find("seq");
  return found == state.options.end() ? 0 : parse_integer("seq", found->second);
}

train::SamplingOptions sampling_from(const GenerateOptions& options) {
  train::SamplingOptions sampling;
  sampling.tokens = parse_integer("--tokens", options.tokens);
  sampling.temperature = parse_number("--temperature", options.temperature);
  sampling.top_k = parse_integer("--top-k", options.top_k, 0);
  sampling.top_p = parse_number("--top-p", options.top_p);
  sampling.seed = static_cast<std::uint64_t>(parse_integer("--seed", options.seed, 0));
  if (!options.window.empty()) sampling.window = parse_integer("--window", options.window);
  sampling.stop_at_eot = !options.ignore_eot;
  train::validate(sampling);
  return sampling;
}

int run(const GenerateOptions& options) {
  train::SamplingOptions sampling = sampling_from(options);
  LoadedModel loaded = options.inference.open("1", "1");
  if (sampling.window == 0) sampling.window = trained_seq(loaded.directory);
  const fs::path tokenizer_path = options.tokenizer.empty() ? loaded.directory : fs::path(options.tokenizer);
  const auto tokenizer = text::Tokenizer::load(tokenizer_path);
  loaded.session->load(loaded.directory);
  const auto start = std::chrono::steady_clock::now();
  write_out(options.prompt);
  flush_out();
  const std::int64_t produced =
      train::generate(*loaded.session, tokenizer, options.prompt, sampling, [](const std::string& text) {
        write_out(text);
        flush_out();
      });
  write_out("\n");
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  note("{} tokens, {:.1f} tokens/s", produced, static_cast<double>(produced) / elapsed_s);
  return 0;
}

}  // namespace

Body declare_generate(CommandLine& line) {
  auto o = std::make_shared<GenerateOptions>();
  o->inference.add_to(line);
  line.add_option("--prompt", o->prompt, "Text to continue (default: the end-of-text token)")
      .type_name("TEXT");
  line.add_option("--tokens", o->tokens, "Most tokens to produce").type_name("N").show_default();
  line.add_option("--temperature", o->temperature, "Divides the logits (0: always the most likely token)")
      .type_name("X")
      .show_default();
  line.add_option("--top-k", o->top_k, "Only the N most likely tokens (0: all)")
      .type_name("N")
      .show_default();
  line.add_option("--top-p", o->top_p, "Only the most likely tokens that together reach this probability")
      .type_name("X")
      .show_default();
  line.add_option("--seed", o->seed, "The same seed gives the same text").type_name("N").show_default();
  line.add_option("--window", o->window,
                  "Tokens that the model sees at most (default: what it was trained with)")
      .type_name("N");
  line.add_flag("--ignore-eot", o->ignore_eot, "Go on after the end-of-text token");
  line.add_option("--tokenizer", o->tokenizer, "tokenizer.json or a directory (default: in --model)")
      .type_name("PATH");
  line.footer(
      "Prints the prompt and what follows it. The whole window is computed anew for every token.\n\n"
      "Example: rooflm generate --model out/ --prompt \"Once upon a time\" --tokens 100 --top-k 40");
  return [o] { return run(*o); };
}

}  // namespace rooflm::cli
