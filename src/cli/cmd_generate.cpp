// rooflm generate: text from a model.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cli/command_record.h"
#include "cli/commands.h"
#include "cli/inference_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/units.h"
#include "lab/run_record.h"
#include "report/generation.h"
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
  std::string record;
  bool ignore_eot = false;
  bool overwrite = false;
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

/// Times from asking for the first token on; the first holds reading the prompt and making the engine.
using TokenTimes = std::vector<double>;

/// The first token, and the rate of those after it; nothing without any.
std::string speed_of(const TokenTimes& token_s) {
  if (token_s.empty()) return "no tokens";
  const std::string first =
      fmt::format("{} tokens, the first after {}", token_s.size(), core::format_seconds(token_s[0]));
  const auto rate = report::token_rate(token_s);
  return rate ? fmt::format("{}, then {:.1f} tokens/s", first, *rate) : first;
}

/// Of one text: B is 1, and T what the model had read and written in the end.
void write_record(CommandRecord& record, lab::Point point, std::size_t prompt_tokens,
                  const TokenTimes& token_s) {
  point.seq = static_cast<std::int64_t>(prompt_tokens + token_s.size());
  record::Run row = lab::run_row(point);
  row.kind = report::kGeneration;
  record::Writer& writer = record.writer();
  const std::int64_t run = writer.begin_run(row);
  std::vector<record::Sample> samples;
  for (std::size_t i = 0; i < token_s.size(); ++i) {
    samples.push_back(
        {.step = static_cast<std::int64_t>(i), .phase = report::kTokenPhase, .seconds = token_s[i]});
  }
  writer.add(run, samples);
  writer.add(
      run, record::Fact{
               .key = report::kPromptTokens, .value = static_cast<double>(prompt_tokens), .unit = "tokens"});
  writer.end_run(run, "success");
  record.finish();
}

int run(const GenerateOptions& options) {
  train::SamplingOptions sampling = sampling_from(options);
  require_file({"-o", options.record});
  check_outputs({{"-o", options.record}}, files_of_models(options.inference.model()), options.overwrite);
  LoadedModel loaded = options.inference.open("1", "1");
  if (sampling.window == 0) sampling.window = trained_seq(loaded.directory);
  const fs::path tokenizer_path = options.tokenizer.empty() ? loaded.directory : fs::path(options.tokenizer);
  const auto tokenizer = text::Tokenizer::load(tokenizer_path);
  loaded.session->load(loaded.directory);
  std::optional<CommandRecord> record;
  if (!options.record.empty()) record.emplace(options.record, options.overwrite, "generate");
  write_out(options.prompt);
  flush_out();
  TokenTimes token_s;
  auto before = std::chrono::steady_clock::now();
  const std::int64_t produced =
      train::generate(*loaded.session, tokenizer, options.prompt, sampling, [&](const std::string& text) {
        const auto now = std::chrono::steady_clock::now();
        token_s.push_back(std::chrono::duration<double>(now - std::exchange(before, now)).count());
        write_out(text);
        flush_out();
      });
  write_out("\n");
  // What follows the last token is no token: the end of an unfinished character, or the end of the text.
  token_s.resize(std::min(token_s.size(), static_cast<std::size_t>(produced)));
  note("{}", speed_of(token_s));
  if (record) write_record(*record, loaded.point, tokenizer.encode(options.prompt).size(), token_s);
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
  line.add_option("-o,--output", o->record, "Keep the time of every token in this run record")
      .type_name("FILE.rooflm");
  line.add_flag("--overwrite", o->overwrite, "Replace a record of that name");
  line.footer(
      "Prints the prompt and what follows it. The whole window is computed anew for every token.\n\n"
      "Example: rooflm generate --model out/ --prompt \"Once upon a time\" --tokens 100 --top-k 40");
  return [o] { return run(*o); };
}

}  // namespace rooflm::cli
