// rooflm generate: text from a model.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_record.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/options/inference_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/rank_texts.h"
#include "cli/table.h"
#include "cli/token_rows.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/stop_signals.h"
#include "core/text_input.h"
#include "core/units.h"
#include "lab/ceilings/ceiling_book.h"
#include "lab/ceilings/roofs.h"
#include "lab/job.h"
#include "lab/kept_work.h"
#include "lab/run_record.h"
#include "model/forward.h"
#include "report/runs/generation.h"
#include "report/tables/typed_columns.h"
#include "text/tokenizer.h"
#include "train/adapter_files.h"
#include "train/checkpoint.h"
#include "train/generate.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

struct GenerateOptions {
  InferenceOptions inference = InferenceOptions::with_split();
  std::vector<std::string> prompts;
  std::string prompts_file;
  std::string tokenizer;
  std::string tokens = "100";
  std::string temperature = "0.8";
  std::string top_k = "0";
  std::string top_p = "1";
  std::string min_p = "0";
  std::string seed = "0";
  std::string window;
  std::string warmup = "0";
  std::vector<std::string> stop;
  std::string logprobs;
  std::string record;
  TableOptions table;
  std::string cp, pp, zero;  ///< refused
  bool ignore_eot = false;
  bool no_cache = false;
  bool overwrite = false, dry_run = false;
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
  sampling.min_p = parse_number("--min-p", options.min_p);
  sampling.seed = static_cast<std::uint64_t>(parse_integer("--seed", options.seed, 0));
  if (!options.window.empty()) sampling.window = parse_integer("--window", options.window);
  sampling.stop_at_eot = !options.ignore_eot;
  sampling.cache = !options.no_cache;
  sampling.warmup = static_cast<int>(parse_integer("--warmup", options.warmup, 0));
  sampling.stop = options.stop;
  if (std::ranges::find(options.stop, "") != options.stop.end())
    throw core::UsageError("--stop is empty: give a word that ends the text");
  if (!options.logprobs.empty()) sampling.top_logprobs = parse_integer("--logprobs", options.logprobs, 0);
  train::validate(sampling);
  return sampling;
}

/// launch runs ranks in the background of its terminal: the system stops those that read it.
void refuse_terminal(const GenerateOptions& options, const lab::Ranks& ranks) {
  const bool is_input = options.prompts_file == "-" || options.prompts_file == "/dev/stdin";
  if (!is_input || ranks == nullptr || !ranks->place().is_launched || ::isatty(STDIN_FILENO) == 0) return;
  throw core::UsageError(fmt::format(
      "--prompts {}: ranks of launch cannot read a terminal; give a file or a pipe", options.prompts_file));
}

/// One text for each --prompt, or for each line of --prompts; an empty one where neither was given.
std::vector<std::string> prompts_of(const GenerateOptions& options) {
  if (options.prompts_file.empty()) {
    return options.prompts.empty() ? std::vector<std::string>{""} : options.prompts;
  }
  if (!options.prompts.empty()) throw core::UsageError("--prompt and --prompts: give one of them");
  std::vector<std::string> prompts;
  std::istringstream lines(core::read_text(options.prompts_file));
  for (std::string line; std::getline(lines, line);) prompts.push_back(line);
  if (prompts.empty())
    throw core::InputError(fmt::format("{}: no prompts; write one per line", options.prompts_file));
  return prompts;
}

std::vector<double> token_seconds(const train::Generation& generation) {
  std::vector<double> seconds;
  for (const train::GenerationStep& step : generation.steps) seconds.push_back(step.seconds);
  return seconds;
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// All texts in their order, and the times of the slowest copy.
struct AllTexts {
  std::vector<std::string> texts{};
  std::vector<std::int64_t> prompt_tokens{}, tokens{};
  double first_s = 0, later_s = 0;  ///< seconds of the first token and of all others
};

AllTexts together(const std::vector<CopyTexts>& copies) {
  AllTexts all;
  const auto append = [](auto& to, const auto& more) { to.insert(to.end(), more.begin(), more.end()); };
  for (const auto& [texts, generation] : copies) {
    append(all.texts, texts);
    append(all.prompt_tokens, generation.prompt_tokens);
    append(all.tokens, generation.tokens);
    const std::vector<double> seconds = token_seconds(generation);
    all.first_s = std::max(all.first_s, seconds.at(0));
    all.later_s = std::max(all.later_s, std::accumulate(seconds.begin() + 1, seconds.end(), 0.0));
  }
  return all;
}

/// The first token, and the rate of those after it; `rate`: of one text, where all are of this rank.
std::string speed_of(const AllTexts& all, const std::optional<double>& rate) {
  const std::int64_t tokens = total(all.tokens);
  const auto texts = static_cast<std::int64_t>(all.tokens.size());
  std::string text = fmt::format("{} tokens, the first after {}", tokens, core::format_seconds(all.first_s));
  if (texts > 1) text = fmt::format("{} texts, {}", texts, text);
  if (tokens == texts || all.later_s <= 0) return text;
  text += fmt::format(", then {:.1f} tokens/s", static_cast<double>(tokens - texts) / all.later_s);
  return texts > 1 && rate ? fmt::format("{}, {:.1f} per text", text, *rate) : text;
}

/// Samples of every step, and what the steps of each kind compute and read: of decoding at the mean length of
/// its texts.
void write_steps(record::Writer& writer, std::int64_t run, const lab::Point& point,
                 const train::Generation& generation, const perfmodel::Machine& machine) {
  std::vector<record::Sample> samples;
  std::int64_t decoded = 0;
  std::int64_t read = 0;
  bool has_prefill = false;
  for (std::size_t i = 0; i < generation.steps.size(); ++i) {
    const train::GenerationStep& step = generation.steps[i];
    const auto add = [&](const char* phase, double seconds) {
      samples.push_back({.step = static_cast<std::int64_t>(i), .phase = phase, .seconds = seconds});
    };
    add(report::kTokenPhase, step.seconds);
    add(step.is_prefill ? report::kPrefillPhase : report::kDecodePhase, step.engine.step_s);
    has_prefill = has_prefill || step.is_prefill;
    if (step.is_prefill) continue;
    decoded += step.texts;
    read += step.read;
  }
  writer.add(run, samples);
  if (has_prefill) {
    const auto program = model::prefill(point.config, generation.size, generation.prefill_seq);
    lab::write_kept_work(writer, run, report::kPrefillPhase, compile::inference_step(program, point.step),
                         machine);
  }
  if (decoded == 0) return;
  const auto program = model::decode(point.config, generation.size, read / decoded);
  lab::write_kept_work(writer, run, report::kDecodePhase, compile::inference_step(program, point.step),
                       machine);
}

/// A run: B is the number of texts, and T what the longest of them had in the end.
void write_run(record::Writer& writer, lab::Point point, const std::string& label,
               const train::Generation& generation, const std::vector<record::Ceiling>& ceilings,
               const char* status) {
  point.batch = generation.size.batch;
  for (std::size_t i = 0; i < generation.tokens.size(); ++i)
    point.seq = std::max(point.seq, generation.prompt_tokens[i] + generation.tokens[i]);
  record::Run row = lab::run_row(point);
  row.kind = report::kGeneration;
  row.label += label;
  const std::int64_t run = writer.begin_run(row);
  const auto fact = [&](const char* key, double value, const char* unit) {
    writer.add(run, record::Fact{.key = key, .value = value, .unit = unit, .text = {}});
  };
  fact(report::kTexts, static_cast<double>(generation.tokens.size()), "texts");
  fact(report::kPromptTokens, static_cast<double>(total(generation.prompt_tokens)), "tokens");
  fact(report::kNewTokens, static_cast<double>(total(generation.tokens)), "tokens");
  fact(report::kSetupS, generation.setup_s, "s");
  write_steps(writer, run, point, generation, lab::machine_of(ceilings, point.device, point.threads));
  writer.end_run(run, status);
}

/// A run for each copy of the model. `signal`: that ended them early, or 0.
void write_record(CommandRecord& record, const lab::Point& point, const std::vector<CopyTexts>& copies,
                  int signal) {
  lab::CeilingBook ceilings;
  try {
    ceilings.measure({&point, 1}, lab::CeilingBook::Wanted::all);
  } catch (const core::Stopped&) {  // NOLINT(bugprone-empty-catch): the tokens were timed, only roofs lack
  }
  for (const record::Ceiling& ceiling : ceilings.rows()) record.writer().add(ceiling);
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const std::string label = copies.size() > 1 ? fmt::format(", copy {}", i) : "";
    write_run(record.writer(), point, label, copies[i].generation, ceilings.rows(),
              signal == 0 ? "success" : "interrupted");
  }
  record.finish();
}

/// A text and what it began with.
struct GeneratedText {
  std::string prompt{}, text{};
  std::int64_t prompt_tokens = 0, tokens = 0;
};

const report::TypedColumns<GeneratedText>& text_columns() {
  static const report::TypedColumns<GeneratedText> columns = {
      {"prompt", "prompt", &GeneratedText::prompt},
      {"text", "text", &GeneratedText::text},
      {"prompt_tokens", &GeneratedText::prompt_tokens},
      {"tokens", "tokens", &GeneratedText::tokens}};
  return columns;
}

Table texts_table(const std::vector<std::string>& prompts, const AllTexts& made) {
  std::vector<GeneratedText> rows;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    rows.push_back({.prompt = prompts[i],
                    .text = made.texts[i],
                    .prompt_tokens = made.prompt_tokens[i],
                    .tokens = made.tokens[i]});
  }
  return text_columns().table(rows);
}

/// Prompt and text, one below the other with an empty line between.
std::string joined(const std::vector<std::string>& prompts, const std::vector<std::string>& texts) {
  std::string all;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    all += fmt::format("{}{}{}\n", i == 0 ? "" : "\n", prompts[i], texts[i]);
  return all;
}

fs::path tokenizer_of(const GenerateOptions& options, const LoadedModel& loaded) {
  return options.tokenizer.empty() ? train::directory_with("tokenizer.json", loaded.directory)
                                   : fs::path(options.tokenizer);
}

/// Before the weights are read: a tokenizer of another model is found, and named.
void require_ids_of_model(const text::Tokenizer& tokenizer, const fs::path& path, const LoadedModel& loaded,
                          std::span<const std::string> prompts) {
  for (const std::string& prompt : prompts) {
    for (const std::uint32_t id : tokenizer.encode(prompt)) {
      if (std::cmp_less(id, loaded.point.config.vocab)) continue;
      throw core::InputError(
          fmt::format("{}: token id {} of the prompt is outside the vocabulary of {} of the model in {}",
                      path.string(), id, loaded.point.config.vocab, loaded.directory.string()));
    }
  }
}

/// Loads the model and generates; `is_live`: writes the one prompt, and its text as it comes.
train::Generation generate(const GenerateOptions& options, const LoadedModel& loaded,
                           const train::SamplingOptions& sampling, std::span<const std::string> prompts,
                           bool is_live, std::vector<std::string>& texts, const lab::Ranks& ranks) {
  const fs::path tokenizer_path = tokenizer_of(options, loaded);
  train::verify_weights(loaded.directory, loaded.point.config);
  const auto tokenizer = text::Tokenizer::load(tokenizer_path);
  require_ids_of_model(tokenizer, tokenizer_path, loaded, prompts);
  loaded.session->load(loaded.directory);
  if (ranks == nullptr) core::StopSignals::check();
  if (is_live) write_out(prompts[0]);
  flush_out();
  texts.resize(prompts.size());
  return train::generate(*loaded.session, tokenizer, prompts, sampling,
                         [&](std::size_t text, const std::string& more) {
                           // Copies wait for nobody before they are done.
                           if (ranks != nullptr) ranks->look_around();
                           texts[text] += more;
                           if (!is_live) return;
                           write_out(more);
                           flush_out();
                         });
}

void refuse_other_splits(const GenerateOptions& options) {
  for (const auto& [name, value] :
       {std::pair("--cp", &options.cp), {"--pp", &options.pp}, {"--zero", &options.zero}}) {
    if (!value->empty())
      throw core::UsageError(
          fmt::format("generate {}: only --dp (prompts) and --tp (layers) can split generation", name));
  }
}

/// What decides the texts, beside the configuration: the same on all ranks.
void agree(const lab::Ranks& ranks, const GenerateOptions& options) {
  lab::agree(ranks, {{"--model", options.inference.model()},
                     {"--tokens", options.tokens},
                     {"--temperature", options.temperature},
                     {"--top-k", options.top_k},
                     {"--top-p", options.top_p},
                     {"--min-p", options.min_p},
                     {"--seed", options.seed},
                     {"--window", options.window},
                     {"--no-cache", options.no_cache ? "yes" : "no"},
                     {"--ignore-eot", options.ignore_eot ? "yes" : "no"},
                     {"--stop", fmt::format("{}", fmt::join(options.stop, "\x1f"))},
                     {"--warmup", options.warmup},
                     {"--tokenizer", options.tokenizer}});
}

/// The signal that ended the texts of a copy early, or 0: on all ranks the same.
int signal_of_any(const lab::Ranks& ranks, int own) {
  return ranks == nullptr ? own : ranks::most(*ranks, own);
}

int run(const GenerateOptions& options, bool as_table, const lab::Ranks& ranks) {
  refuse_other_splits(options);
  const bool is_first = ranks::is_first(ranks);
  train::SamplingOptions sampling = sampling_from(options);
  const bool shows_tokens = sampling.top_logprobs.has_value();
  if (shows_tokens && ranks != nullptr && ranks->size() > 1)
    throw core::UsageError("--logprobs works with one process only");
  require_columns(shows_tokens ? token_columns() : report::columns_of(text_columns()), options.table.style());
  agree(ranks, options);
  if (is_first) refuse_terminal(options, ranks);
  // Standard input is one for all.
  const std::vector<std::string> prompts =
      from_first(ranks, is_first ? prompts_of(options) : std::vector<std::string>());
  require_file({"-o", options.record});
  if (is_first)
    check_outputs({{"-o", options.record}}, files_of_models(options.inference.model()), options.overwrite);
  LoadedModel loaded = options.inference.open("1", "1", ranks);
  if (sampling.window == 0) sampling.window = trained_seq(loaded.directory);
  if (options.dry_run) {
    if (is_first) {
      show_dry_run(fmt::format("continue {} prompts by at most {} tokens each, with {} on {}", prompts.size(),
                               sampling.tokens, loaded.directory.string(), loaded.point.device),
                   {{"-o", options.record}});
    }
    return 0;
  }
  const core::StopSignals signals;  // without a run the record goes away with the next object
  std::optional<CommandRecord> record;
  if (is_first && !options.record.empty()) record.emplace(options.record, options.overwrite, "generate");
  const compile::Sharding& sharding = loaded.point.step.sharding;
  const Places own = own_places(prompts.size(), sharding.data, loaded.point.step.rank.data);
  sampling.first_text = own.begin;
  const bool is_live = is_first && prompts.size() == 1 && !as_table && !shows_tokens;
  CopyTexts mine;
  if (own.size() > 0) {
    mine.generation = generate(options, loaded, sampling, std::span(prompts).subspan(own.begin, own.size()),
                               is_live, mine.texts, ranks);
  }
  const std::vector<CopyTexts> copies = gather_texts(ranks, sharding, mine);
  const int signal = signal_of_any(ranks, mine.generation.signal);
  if (is_first) {
    const AllTexts made = together(copies);
    if (is_live) {
      write_out("\n");
    } else if (shows_tokens) {
      const auto tokenizer = text::Tokenizer::load(tokenizer_of(options, loaded));
      write_out(show_table(tokens_table(mine.generation, tokenizer), options.table.style()));
    } else {
      write_out(as_table ? show_table(texts_table(prompts, made), options.table.style())
                         : joined(prompts, made.texts));
    }
    const auto rate = sharding.data == 1 ? report::token_rate(token_seconds(mine.generation)) : std::nullopt;
    note("{}", speed_of(made, rate));
    if (record) write_record(*record, loaded.point, copies, signal);
  }
  if (ranks != nullptr) {
    const ranks::Patience patience(ranks.get());  // while the first measures ceilings
    ranks::meet(*ranks);
  }
  if (ranks == nullptr) core::StopSignals::check();
  if (signal != 0 && is_first) throw core::Stopped{signal};
  return signal == 0 ? 0 : core::stopped_code(signal);
}

}  // namespace

Body declare_generate(CommandLine& line) {
  auto o = std::make_shared<GenerateOptions>();
  o->inference.add_to(line);
  line.add_option("--prompt", o->prompts,
                  "Text to continue (default: the end-of-text token); repeat it for several prompts")
      .type_name("TEXT")
      .repeated();
  line.add_option("--prompts", o->prompts_file,
                  "File of prompts to continue at once, one per line (-: standard input)")
      .type_name("FILE");
  line.add_option("--tokens", o->tokens, "Maximum number of new tokens").type_name("N").show_default();
  line.add_option("--temperature", o->temperature, "Divides the logits (0: always the most likely token)")
      .type_name("X")
      .show_default();
  line.add_option("--top-k", o->top_k, "Sample from the N most likely tokens (0: all)")
      .type_name("N")
      .show_default();
  line.add_option("--top-p", o->top_p,
                  "Sample from the most likely tokens that together reach this probability")
      .type_name("X")
      .show_default();
  line.add_option("--min-p", o->min_p, "Only tokens at least this likely, relative to the most likely one")
      .type_name("X")
      .show_default();
  line.add_option("--seed", o->seed, "The same seed gives the same text").type_name("N").show_default();
  line.add_option("--window", o->window, "Context window in tokens (default: as in training)").type_name("N");
  line.add_option("--stop", o->stop, "Word that ends a text and is left out of it; repeat it for several")
      .type_name("TEXT")
      .repeated();
  line.add_option(
          "--logprobs", o->logprobs,
          "Print tokens as rows, with natural logarithms of probabilities at temperature 1: those chosen, "
          "and the N most likely ones of each place")
      .type_name("N");
  line.add_flag("--ignore-eot", o->ignore_eot, "Continue after the end-of-text token");
  line.add_option("--tokenizer", o->tokenizer, "tokenizer.json or a directory (default: in --model)")
      .type_name("PATH");
  line.add_flag("--no-cache", o->no_cache, "Use no KV cache: process the whole text again for every token");
  line.add_option("--warmup", o->warmup, "Prefill passes before timing starts").type_name("N").show_default();
  o->table.add_to(line, "Texts as rows, with their token counts (default: only the texts)");
  line.add_option("-o,--output", o->record, "Write the time of every token to this run record")
      .type_name("FILE.rooflm");
  line.add_flag("--overwrite", o->overwrite, "Overwrite an existing record");
  add_dry_run(line, o->dry_run, "");
  for (const auto& [name, value] : {std::pair("--cp", &o->cp), {"--pp", &o->pp}, {"--zero", &o->zero}})
    line.add_option(name, *value, "").group("");
  line.footer(
      "Prints the prompt and its continuation. With several prompts, prints all texts\n"
      "at the end, separated by empty lines. Prefill processes all prompts at once;\n"
      "each decode step then adds one token to every text, using the KV cache. A text\n"
      "that fills the window is processed again for every token. Several ranks (launch\n"
      "-n 2 -- generate) share the prompts; with --tp N, groups of N ranks share layers\n"
      "and KV cache. The record has a run for each copy of the model. bench and profile\n"
      "time the same passes with --phase prefill and decode, with random weights, for\n"
      "any model and length.\n\n"
      "Example: rooflm generate --model out/ --prompt \"Once upon a time\" --tokens 100 --top-k 40");
  return [o, &line] {
    return lab::run_in_job(
        [&](const lab::Ranks& ranks) { return run(*o, line.was_given("--format"), ranks); });
  };
}

}  // namespace rooflm::cli
