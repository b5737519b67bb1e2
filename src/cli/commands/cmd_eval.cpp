// rooflm eval: the loss of a model on token shards.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/options/inference_options.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "lab/job.h"
#include "report/tables/typed_columns.h"
#include "text/prepare.h"
#include "train/checkpoint.h"
#include "train/data_loader.h"
#include "train/evaluate.h"
#include "train/training_data.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

struct EvalOptions {
  InferenceOptions inference;
  std::vector<std::string> data;
  std::string batch = "4";
  std::string seq = "64";
  std::string batches;
  TableOptions table;
  bool dry_run = false;
};

/// Shards; of a prepared directory those of its validation part.
std::vector<fs::path> shards_of(const std::vector<std::string>& data) {
  if (data.empty()) throw core::UsageError("--data is missing: a shard, or a directory made by data prepare");
  std::vector<fs::path> shards;
  for (const std::string& path : data) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      shards.emplace_back(path);
      continue;
    }
    const auto val = text::open_prepared(path).val.shards;
    if (val.empty()) throw core::InputError(path + ": has no validation part");
    shards.insert(shards.end(), val.begin(), val.end());
  }
  return shards;
}

/// What must be the same on all ranks besides the configuration.
std::map<std::string, std::string> values_of(const EvalOptions& options, const train::EvalBatches& batches) {
  return {{"--model", options.inference.model()},
          {"--batches", options.batches},
          {"batches of --data", std::to_string(batches.size())}};
}

/// What was evaluated, and how long it took.
struct Evaluated : train::Evaluation {
  const lab::Point* point = nullptr;
  double elapsed_s = 0;
};

const report::TypedColumns<Evaluated>& eval_columns() {
  using Of = const Evaluated&;
  static const report::TypedColumns<Evaluated> columns = {
      {"model", "model", [](Of of) { return of.point->config.name; }},
      {"arch", [](Of of) { return model::name_of(of.point->config.arch); }},
      {"engine", "engine", [](Of of) { return compile::name_of(of.point->step.engine); }},
      {"attention", [](Of of) { return passes::name_of(of.point->step.attention); }},
      {"device", [](Of of) { return of.point->device; }},
      {"dtype", "dtype", [](Of of) { return compile::dtype_name(of.point->step); }},
      {"batch", "batch", [](Of of) { return of.point->batch; }},
      {"seq", "seq", [](Of of) { return of.point->seq; }},
      {"loss", "loss", &Evaluated::loss},
      {"perplexity", "perplexity", &Evaluated::perplexity},
      {"tokens", "tokens", &Evaluated::tokens},
      {"batches", "batches", &Evaluated::batches},
      {"tokens_per_s", "tokens/s", [](Of of) { return static_cast<double>(of.tokens) / of.elapsed_s; },
       Show::si}};
  return columns;
}

int run(const EvalOptions& options, const lab::Ranks& ranks) {
  const TableStyle style = options.table.style();
  require_columns(report::columns_of(eval_columns()), style);
  const auto shards = shards_of(options.data);
  const std::uint64_t most = options.batches.empty()
                                 ? UINT64_MAX
                                 : static_cast<std::uint64_t>(parse_integer("--batches", options.batches));
  LoadedModel loaded = options.inference.open(options.batch, options.seq, ranks);
  train::require_same_tokenizer(loaded.directory, {options.data.begin(), options.data.end()});
  const lab::Point& point = loaded.point;
  const train::EvalBatches batches(shards, point.batch, point.seq,
                                   static_cast<std::uint32_t>(point.config.vocab));
  lab::agree(ranks, values_of(options, batches));
  if (options.dry_run) {
    if (ranks::is_first(ranks)) {
      show_dry_run(fmt::format("evaluate {} on {} of {} batches of {} x {} tokens, on {}",
                               loaded.directory.string(), std::min<std::uint64_t>(most, batches.size()),
                               batches.size(), point.batch, point.seq, point.device),
                   {});
    }
    return 0;
  }
  train::verify_weights(loaded.directory, point.config);
  loaded.session->make_loss_engine(point.batch, point.seq);
  loaded.session->load(loaded.directory);
  if (ranks != nullptr) {
    const ranks::Patience patience(ranks.get());  // weights may be read from disks of different speed
    ranks::meet(*ranks);
  }
  const auto start = std::chrono::steady_clock::now();
  const train::Evaluation result = ranks == nullptr ? train::evaluate(*loaded.session, batches, most)
                                                    : train::evaluate(*loaded.session, batches, most, *ranks);
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!std::isfinite(result.loss)) {
    throw core::CheckFailed(fmt::format("the loss of {} is {}", loaded.directory.string(), result.loss));
  }
  if (!ranks::is_first(ranks)) return 0;
  Table table = eval_columns().table(std::array{Evaluated{result, &point, elapsed_s}});
  table.notes = {"loss: mean cross-entropy in nats per token; perplexity = exp(loss)"};
  write_out(show_table(table, style));
  return 0;
}

}  // namespace

Body declare_eval(CommandLine& line) {
  auto options = std::make_shared<EvalOptions>();
  options->inference.add_to(line);
  line.add_option("--data", options->data,
                  "Shards, or a directory made by data prepare (its validation part)")
      .type_name("SHARD...|DIR")
      .list();
  line.add_option("--batch", options->batch, "Sequences per batch, B").type_name("N").show_default();
  line.add_option("--seq", options->seq, "Tokens per sequence, T").type_name("N").show_default();
  line.add_option("--batches", options->batches, "Maximum number of batches (default: all)").type_name("N");
  options->table.add_to(line, "Output format; JSON and CSV have all numbers at full precision");
  add_dry_run(line, options->dry_run, "");
  line.footer(
      "Each shard is read in consecutive windows of B * T tokens; targets are one token\n"
      "further. An incomplete window at the end is not used. loss is the mean\n"
      "cross-entropy over all tokens, in nats. With several ranks (launch -n 2 --\n"
      "eval), each rank has the whole model and evaluates its share of the batches.\n\n"
      "Example: rooflm eval --model out/ --data data/val_000000.bin --batch 8 --seq 256");
  return [options] { return lab::run_in_job([&](const lab::Ranks& ranks) { return run(*options, ranks); }); };
}

}  // namespace rooflm::cli
