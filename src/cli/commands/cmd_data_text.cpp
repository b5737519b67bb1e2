// rooflm data train-tokenizer, tokenize and decode: between text and token ids.
#include <charconv>
#include <memory>
#include <string_view>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/stop_signals.h"
#include "core/text_input.h"
#include "text/bpe_trainer.h"
#include "text/tokenizer.h"

namespace rooflm::cli {
namespace {

struct TextArguments {
  std::string tokenizer;
  std::string file;
  bool special = false;
};

/// The text of a file, or of standard input for "" and "-".
core::TextInput open_text(const std::string& file) { return core::TextInput(file.empty() ? "-" : file); }

int run_tokenize(const TextArguments& arguments) {
  const auto tokenizer = text::Tokenizer::load(arguments.tokenizer);
  const core::TextInput input = open_text(arguments.file);
  const std::string_view text = input.text();
  const auto ids = arguments.special ? tokenizer.encode(text, text::SpecialTokens::recognise)
                                     : tokenizer.encode_parallel(text);
  write_out(fmt::format("{}\n", fmt::join(ids, " ")));
  return 0;
}

std::vector<std::uint32_t> parse_ids(std::string_view text) {
  std::vector<std::uint32_t> ids;
  const char* position = text.data();
  const char* const end = text.data() + text.size();
  while (true) {
    while (position != end && (std::isspace(static_cast<unsigned char>(*position)) != 0 || *position == ','))
      ++position;
    if (position == end) return ids;
    std::uint32_t id = 0;
    const auto result = std::from_chars(position, end, id);
    if (result.ec != std::errc()) {
      throw core::InputError(fmt::format("token ids: no number at byte {}", position - text.data()));
    }
    ids.push_back(id);
    position = result.ptr;
  }
}

int run_decode(const TextArguments& arguments) {
  const auto tokenizer = text::Tokenizer::load(arguments.tokenizer);
  write_out(tokenizer.decode(parse_ids(open_text(arguments.file).text())));
  return 0;
}

struct TrainerArguments {
  std::vector<std::string> inputs;
  std::string output;
  std::string vocab = "4096";
  bool overwrite = false, dry_run = false;
};

int run_train(const TrainerArguments& arguments) {
  constexpr std::int64_t kMostIds = 1 << 24;
  const core::StopSignals signals;
  text::BpeTrainOptions options;
  options.vocab_size =
      static_cast<std::uint32_t>(std::min(parse_integer("--vocab", arguments.vocab), kMostIds));
  require_file({"-o", arguments.output});
  check_outputs({{"-o", arguments.output}}, files_of(arguments.inputs), arguments.overwrite);
  if (arguments.dry_run) {
    show_dry_run(
        fmt::format("learn a vocabulary of {} from {} files", options.vocab_size, arguments.inputs.size()),
        {{"-o", arguments.output}});
    return 0;
  }
  text::BpeTrainer trainer(options);
  for (const std::string& input : arguments.inputs) trainer.add(core::TextInput(input).text());
  const text::Tokenizer tokenizer = trainer.train();
  tokenizer.save(arguments.output);
  note("{}: {} ids", arguments.output, tokenizer.vocab_size());
  return 0;
}

void add_tokenizer(CommandLine& line, TextArguments& arguments) {
  line.add_option("--tokenizer", arguments.tokenizer, "tokenizer.json, vocab.json, or a directory with them")
      .type_name("PATH")
      .required();
}

}  // namespace

Body declare_data_tokenize(CommandLine& line) {
  auto a = std::make_shared<TextArguments>();
  add_tokenizer(line, *a);
  line.add_option("file", a->file, "Text (default: standard input)").type_name("FILE");
  line.add_flag("--special", a->special, "Names of special tokens in the text become those tokens");
  line.footer("Prints the ids on one line.\n\nExample: echo hello | rooflm data tokenize --tokenizer data/");
  return [a] { return run_tokenize(*a); };
}

Body declare_data_decode(CommandLine& line) {
  auto a = std::make_shared<TextArguments>();
  add_tokenizer(line, *a);
  line.add_option("file", a->file, "Ids separated by spaces or commas (default: standard input)")
      .type_name("FILE");
  line.footer("Example: echo 31373 995 | rooflm data decode --tokenizer gpt2/");
  return [a] { return run_decode(*a); };
}

Body declare_data_train_tokenizer(CommandLine& line) {
  auto a = std::make_shared<TrainerArguments>();
  line.add_option("inputs", a->inputs, "Text files, pipes; - is standard input").type_name("FILE").required();
  line.add_option("-o,--output", a->output, "The tokenizer.json to write").type_name("FILE").required();
  line.add_option("--vocab", a->vocab, "Vocabulary size: bytes, merges and special tokens")
      .type_name("N")
      .show_default();
  line.add_flag("--overwrite", a->overwrite, "Overwrite an existing file");
  add_dry_run(line, a->dry_run, "");
  line.footer("Example: rooflm data train-tokenizer book.txt -o tokenizer.json --vocab 8192");
  return [a] { return run_train(*a); };
}

}  // namespace rooflm::cli
