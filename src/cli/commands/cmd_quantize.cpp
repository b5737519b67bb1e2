// rooflm quantize: a model's directory with weights in fewer bits.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/export_model.h"
#include "cli/inference_options.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/values.h"
#include "compile/passes/pack_weights.h"
#include "core/error.h"
#include "core/packed_weights.h"
#include "lab/notes.h"
#include "model/huggingface.h"
#include "model/quantized_files.h"
#include "report/tables/typed_columns.h"
#include "text/prepare.h"
#include "train/checkpoint.h"
#include "train/data_loader.h"
#include "train/evaluate.h"
#include "train/gptq.h"
#include "train/training_data.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;
using core::WeightFormat;

enum class Method : std::uint8_t { rtn, gptq };
constexpr auto names_of(Method) {
  return core::named<Method>("method", {{Method::rtn, "rtn"}, {Method::gptq, "gptq"}});
}

struct QuantizeOptions {
  InferenceOptions inference;
  std::string output, weights, method = "rtn", sparse;
  std::vector<std::string> data;
  std::string seq = "256", samples = "64", batches = "16";
  TableOptions table;
  bool dry_run = false;
};

/// What is asked for, checked.
struct Wish {
  WeightFormat format = WeightFormat::plain;
  Method method = Method::rtn;
  bool is_sparse = false;
  [[nodiscard]] core::DType dtype() const { return core::dtype_of(format); }
};

Wish wish_of(const QuantizeOptions& options) {
  Wish wish{.method = core::parse<Method>(options.method)};
  if (!options.sparse.empty() && options.sparse != "2:4")
    throw core::UsageError(fmt::format("--sparse {}: only 2:4 is known", options.sparse));
  wish.is_sparse = !options.sparse.empty();
  if (!options.weights.empty()) wish.format = core::parse<WeightFormat>(options.weights);
  const bool is_written = core::is_packed(wish.dtype()) && wish.format != WeightFormat::sparse;
  if (!options.weights.empty() && !is_written)
    throw core::UsageError(
        fmt::format("--weights {}: files have int8, int4, nf4 and fp8 (2:4 is --sparse)", options.weights));
  if (!is_written && !wish.is_sparse)
    throw core::UsageError("quantize: name --weights int8|int4|nf4|fp8, or --sparse 2:4");
  if (wish.method == Method::rtn) return wish;
  if (wish.format != WeightFormat::int8 && wish.format != WeightFormat::int4)
    throw core::UsageError("--method gptq rounds to int8 and int4 alone");
  if (wish.is_sparse)
    throw core::UsageError("--sparse 2:4, --method gptq: GPTQ fills what is pruned; leave one out");
  if (options.data.empty()) throw core::UsageError("--method gptq: give a calibration text with --data");
  return wish;
}

/// Shards to calibrate on and to evaluate on: of a prepared directory its two parts.
struct Texts {
  std::vector<fs::path> calibration, evaluation;
};
Texts texts_of(const std::vector<std::string>& data) {
  if (data.empty()) return {};
  const train::TrainingData found = train::open_training_data({data.begin(), data.end()});
  return {found.train, found.val.empty() ? found.train : found.val};
}

std::uint64_t bytes_of(const fs::path& directory) {
  std::uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(directory))
    if (file.path().extension() == ".safetensors") bytes += file.file_size();
  return bytes;
}

/// Mean loss, or nothing without a text.
std::optional<train::Evaluation> evaluate(train::Session& session, const fs::path& directory,
                                          const train::EvalBatches* batches, std::uint64_t most) {
  session.load(directory);
  if (batches == nullptr) return std::nullopt;
  return train::evaluate(session, *batches, most);
}

void prune(train::Session& session) {
  for (const auto& [name, entry] : session.store().entries()) {
    if (!passes::has_format(entry.tensor)) continue;
    std::vector<float> values = session.weight(name);
    core::prune_2_of_4(values);
    session.write_whole(name, values);
  }
}

struct Row {
  std::string model, weights, method;
  std::uint64_t bytes = 0;
  std::optional<double> loss{}, perplexity{};
};

const report::TypedColumns<Row>& columns() {
  static const report::TypedColumns<Row> all = {
      {"model", "model", &Row::model},    {"weights", "weights", &Row::weights},
      {"method", "method", &Row::method}, {"bytes", "bytes", &Row::bytes, Show::si},
      {"loss", "loss", &Row::loss},       {"perplexity", "perplexity", &Row::perplexity}};
  return all;
}

Row row_of(const fs::path& directory, const Wish& wish, const std::optional<train::Evaluation>& result) {
  const bool is_source = wish.format == WeightFormat::plain && !wish.is_sparse;
  std::string weights = std::string(name_of(wish.format));
  if (wish.is_sparse) weights += ", 2:4";
  Row row{.model = directory.string(),
          .weights = weights,
          .method = is_source ? "" : std::string(core::name_of(wish.method)),
          .bytes = bytes_of(directory)};
  if (result) {
    row.loss = result->loss;
    row.perplexity = result->perplexity;
  }
  return row;
}

int run(const QuantizeOptions& options) {
  const TableStyle style = options.table.style();
  require_columns(report::columns_of(columns()), style);
  const Wish wish = wish_of(options);
  if (options.output.empty()) throw core::UsageError("quantize: name the directory to write with -o");
  refuse_existing(options.output);
  const Texts texts = texts_of(options.data);
  LoadedModel loaded = options.inference.open("1", options.seq);
  const model::ModelConfig& config = loaded.point.config;
  if (const WeightFormat stored = model::read_weight_format(loaded.directory); stored != WeightFormat::plain)
    throw core::InputError(
        fmt::format("{}: its weights are {} already; quantise the model that they were made of",
                    loaded.directory.string(), name_of(stored)));
  if (loaded.point.step.base != WeightFormat::plain)
    throw core::UsageError("--base: quantize takes --weights");
  train::require_same_tokenizer(loaded.directory, {options.data.begin(), options.data.end()});
  const auto most = static_cast<std::uint64_t>(parse_integer("--batches", options.batches));
  const auto samples = static_cast<std::uint64_t>(parse_integer("--samples", options.samples));
  std::unique_ptr<train::EvalBatches> calibration, evaluation;
  const auto open = [&](const std::vector<fs::path>& shards) {
    return std::make_unique<train::EvalBatches>(shards, 1, loaded.point.seq,
                                                static_cast<std::uint32_t>(config.vocab));
  };
  if (!options.data.empty()) evaluation = open(texts.evaluation);
  if (wish.method == Method::gptq) {
    calibration = open(texts.calibration);
    if (calibration->size() < samples)
      throw core::InputError(
          fmt::format("--data: the calibration text has {} sequences of {} tokens, --samples asks for {}",
                      calibration->size(), loaded.point.seq, samples));
  }
  if (options.dry_run) {
    show_dry_run(fmt::format("quantize {}", loaded.directory.string()), {{"-o", options.output}});
    return 0;
  }
  train::verify_weights(loaded.directory, config);
  train::Session& session = *loaded.session;
  if (evaluation) session.make_loss_engine(1, loaded.point.seq);
  std::vector<Row> rows{
      row_of(loaded.directory, {}, evaluate(session, loaded.directory, evaluation.get(), most))};
  if (wish.is_sparse) prune(session);
  model::PackedWeights packed;
  if (calibration) {
    packed = train::quantize_by_gptq(session, wish.dtype(), *calibration, samples, [&](std::int64_t layer) {
      lab::note("layer {} of {}", layer, config.layers);
    });
  }
  compile::StepOptions step = loaded.point.step;
  step.base = wish.format;
  std::optional<train::Evaluation> result;
  write_directory(options.output, [&](const fs::path& directory) {
    const model::TextEnds ends = copy_tokenizer(loaded.directory, directory);
    const model::WeightSource source = [&](const std::string& name, std::span<float> values) {
      session.read_whole(name, values);
    };
    if (wish.format == WeightFormat::plain) {
      model::save_model(directory, config, source, core::DType::f32, model::kMaxShardBytes, {}, ends);
    } else {
      model::save_quantized(directory, config, wish.format, source, packed, ends);
    }
    train::Session written(*loaded.backend, config, step);  // what was written is what is evaluated
    if (evaluation) written.make_loss_engine(1, loaded.point.seq);
    result = evaluate(written, directory, evaluation.get(), most);
  });
  rows.push_back(row_of(options.output, wish, result));
  Table table = columns().table(rows);
  if (evaluation)
    table.notes = {fmt::format(
        "loss: mean cross-entropy in nats per token of {} tokens; perplexity = exp(loss)", result->tokens)};
  write_out(show_table(table, style));
  return 0;
}

}  // namespace

Body declare_quantize(CommandLine& line) {
  auto options = std::make_shared<QuantizeOptions>();
  options->inference.add_to(line);
  line.add_option("--weights", options->weights, "Format of the matrices of layers")
      .type_name("int8|int4|nf4|fp8");
  line.add_option("--sparse", options->sparse, "Keep the 2 of each 4 weights of a row that are largest")
      .type_name("2:4");
  line.add_option("--method", options->method, "Round to nearest, or by GPTQ with a calibration text")
      .type_name("rtn|gptq")
      .show_default();
  line.add_option(
          "--data", options->data,
          "Text to calibrate and to evaluate on: a directory made by data prepare (its two parts), or shards")
      .type_name("SHARD...|DIR")
      .list();
  line.add_option("--samples", options->samples, "Sequences to calibrate on").type_name("N").show_default();
  line.add_option("--seq", options->seq, "Tokens per sequence, T").type_name("N").show_default();
  line.add_option("--batches", options->batches, "Sequences to evaluate on").type_name("N").show_default();
  line.add_option("-o,--output", options->output, "Directory to write").type_name("DIR");
  options->table.add_to(line, "Output format; JSON and CSV have all numbers at full precision");
  add_dry_run(line, options->dry_run, "");
  line.footer(
      "Embeddings, head, norms and biases stay fp32. eval, generate and serve read the directory, and\n"
      "train --lora trains beside it. docs/quantization.md names formats and tensors.\n\n"
      "Example: rooflm quantize --model out/ --weights int4 --method gptq --data data/ -o out-int4/");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
