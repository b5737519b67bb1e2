// rooflm data prepare and data info: token shards from text, and what they hold.
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/ratio.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "report/tables/typed_columns.h"
#include "text/prepare.h"
#include "text/prepare_output.h"
#include "text/shard.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

struct PrepareArguments {
  std::vector<std::string> inputs;
  std::string output;
  std::string tokenizer;
  std::string vocab = "4096";
  std::string val_fraction = "0.1";
  std::string seed = "0";
  std::string shard_tokens = "100000000";
  std::string threads = "0";
  TableOptions table;
  bool overwrite = false, dry_run = false;
};

/// A part of a prepared directory.
struct PreparedPart {
  const char* name = "";
  const text::PreparedData* data = nullptr;
  const text::SplitInfo* split = nullptr;
  bool is_val = false;
};

const report::TypedColumns<PreparedPart>& prepared_columns() {
  using Of = const PreparedPart&;
  static const report::TypedColumns<PreparedPart> columns = {
      {"split", "split", &PreparedPart::name},
      {"documents", "documents", [](Of of) { return of.split->documents; }},
      {"bytes", "bytes", [](Of of) { return of.split->bytes; }, Show::bytes},
      {"tokens", "tokens", [](Of of) { return of.split->tokens; }},
      {"bytes_per_token", "bytes/token",
       [](Of of) {
         return core::ratio_of(static_cast<double>(of.split->bytes), static_cast<double>(of.split->tokens));
       },
       Show::fixed2},
      {"shards", "shards", [](Of of) { return of.split->shards.size(); }},
      {"first_shard", "first shard",
       [](Of of) { return of.split->shards.empty() ? Cell() : Cell(of.split->shards.front().string()); }},
      {"vocab", [](Of of) { return of.data->vocab_size; }},
      {"tokenizer", [](Of of) { return of.data->tokenizer.string(); }},
      {"unigram_entropy",
       [](Of of) {
         return of.is_val ? of.data->val_unigram_entropy : std::optional(of.data->train_unigram_entropy);
       }},
      {"unigram_cross_entropy",
       [](Of of) { return of.is_val ? of.data->val_unigram_cross_entropy : std::nullopt; }}};
  return columns;
}

Table prepared_table(const text::PreparedData& data) {
  Table table = prepared_columns().table(
      std::array{PreparedPart{.name = "train", .data = &data, .split = &data.train},
                 PreparedPart{.name = "val", .data = &data, .split = &data.val, .is_val = true}});
  table.notes.push_back(fmt::format("tokenizer: {}, {} ids", data.tokenizer.string(), data.vocab_size));
  if (data.val_unigram_cross_entropy) {
    table.notes.push_back(
        fmt::format("A model that ignores context reaches a validation loss of {:.3f} nats.",
                    *data.val_unigram_cross_entropy));
  }
  return table;
}

/// Files in the directory with names that prepare writes.
std::vector<OutputPath> replaced_by(const text::PrepareOptions& options) {
  std::vector<OutputPath> outputs;
  std::error_code error;
  for (fs::directory_iterator entry(options.output, error), end; !error && entry != end;
       entry.increment(error)) {
    if (text::is_prepared_name(entry->path().filename().string())) outputs.push_back({"-o", entry->path()});
  }
  return outputs;
}

/// The named files. Folders are searched, except for prepared data of the output.
std::vector<fs::path> inputs_of(const PrepareArguments& arguments) {
  std::vector<std::string> files = {arguments.tokenizer};
  std::error_code ignored;
  for (const std::string& input : arguments.inputs) {
    if (!fs::is_directory(input, ignored)) files.push_back(input);
  }
  return files_of(files);
}

int run_prepare(const PrepareArguments& arguments) {
  const TableStyle style = arguments.table.style();
  require_columns(report::columns_of(prepared_columns()), style);
  constexpr std::int64_t kMostIds = 1 << 24;
  text::PrepareOptions options;
  options.inputs.assign(arguments.inputs.begin(), arguments.inputs.end());
  options.output = arguments.output;
  options.tokenizer = arguments.tokenizer;
  options.train_vocab =
      static_cast<std::uint32_t>(std::min(parse_integer("--vocab", arguments.vocab), kMostIds));
  options.val_fraction = parse_number("--val-fraction", arguments.val_fraction);
  options.seed = static_cast<std::uint64_t>(parse_integer("--seed", arguments.seed, 0));
  options.shard_tokens = static_cast<std::uint64_t>(parse_integer("--shard-tokens", arguments.shard_tokens));
  options.threads =
      static_cast<int>(std::min<std::int64_t>(parse_integer("--threads", arguments.threads, 0), INT32_MAX));
  options.overwrite = arguments.overwrite;
  options.message = [](const std::string& line) { note("{}", line); };
  const core::StopSignals signals;
  refuse_inputs(replaced_by(options), inputs_of(arguments));
  if (arguments.dry_run) {
    const text::PrepareInputs found = text::find_inputs(options);
    show_dry_run(
        fmt::format("prepare {} documents, {}, with {}", found.documents,
                    core::format_bytes(static_cast<double>(found.bytes)),
                    options.tokenizer.empty() ? fmt::format("a new vocabulary of {}", options.train_vocab)
                                              : options.tokenizer.string()),
        {{"-o", options.output}});
    return 0;
  }
  write_out(show_table(prepared_table(text::prepare(options)), style));
  return 0;
}

/// What a shard holds.
struct ShardInfo {
  std::string path{};
  std::uint64_t tokens = 0;
  int token_bytes = 0;
  std::optional<std::int32_t> largest_id{};
};

const report::TypedColumns<ShardInfo>& shard_columns() {
  static const report::TypedColumns<ShardInfo> columns = {
      {"shard", "shard", &ShardInfo::path},
      {"tokens", "tokens", &ShardInfo::tokens},
      {"token_bytes", "bytes a token", &ShardInfo::token_bytes},
      {"largest_id", "largest id", &ShardInfo::largest_id}};
  return columns;
}

Table shard_table(const fs::path& path) {
  const text::Shard shard(path);
  constexpr std::uint64_t kChunk = 1 << 16;
  ShardInfo info{
      .path = path.string(), .tokens = shard.size(), .token_bytes = static_cast<int>(shard.width())};
  std::vector<std::int32_t> tokens;
  for (std::uint64_t first = 0; first < shard.size(); first += kChunk) {
    tokens.resize(std::min(kChunk, shard.size() - first));
    shard.read(first, tokens);
    info.largest_id = std::max(info.largest_id.value_or(0), *std::ranges::max_element(tokens));
  }
  return shard_columns().table(std::array{info});
}

int run_info(const std::vector<std::string>& paths, const TableOptions& table) {
  const TableStyle style = table.style();
  if (paths.size() != 1) throw core::UsageError("data info takes one shard or one prepared directory");
  std::error_code ignored;
  const bool is_directory = fs::is_directory(paths[0], ignored);
  write_out(show_table(is_directory ? prepared_table(text::open_prepared(paths[0])) : shard_table(paths[0]),
                       style));
  return 0;
}

}  // namespace

Body declare_data_prepare(CommandLine& line) {
  auto a = std::make_shared<PrepareArguments>();
  line.add_option("inputs", a->inputs, "Text files, folders of them, pipes; - is standard input")
      .type_name("PATH")
      .required();
  line.add_option("-o,--output", a->output, "Output directory; created if missing")
      .type_name("DIR")
      .required();
  line.add_option("--tokenizer", a->tokenizer,
                  "tokenizer.json, vocab.json, or a directory with them (default: learn one from the text)")
      .type_name("PATH");
  line.add_option("--vocab", a->vocab, "Vocabulary size of a learned tokenizer")
      .type_name("N")
      .show_default();
  line.add_option(
          "--val-fraction", a->val_fraction,
          "Maximum share of documents, and of bytes, held out for validation; below 1, in whole documents")
      .type_name("X")
      .show_default();
  line.add_option("--seed", a->seed, "Seed for choosing validation documents").type_name("N").show_default();
  line.add_option("--shard-tokens", a->shard_tokens, "Maximum tokens per shard")
      .type_name("N")
      .show_default();
  line.add_option("--threads", a->threads, "Threads (0: one per core)").type_name("N").show_default();
  line.add_flag("--overwrite", a->overwrite, "Overwrite prepared data in the directory");
  add_dry_run(line, a->dry_run, "");
  a->table.add_to(line, "Format of the summary");
  line.footer("Example: rooflm data prepare texts/ -o data/ --vocab 8192");
  return [a] { return run_prepare(*a); };
}

Body declare_data_info(CommandLine& line) {
  auto paths = std::make_shared<std::vector<std::string>>();
  auto table = std::make_shared<TableOptions>();
  line.add_option("path", *paths, "A shard (.bin) or a directory made by data prepare")
      .type_name("PATH")
      .required();
  table->add_to(line, "Output format; JSON has all numbers at full precision");
  line.footer("Example: rooflm data info data/train_000000.bin");
  return [paths, table] { return run_info(*paths, *table); };
}

}  // namespace rooflm::cli
