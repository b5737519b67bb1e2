// rooflm quantize: a model's directory with weights in fewer bits.
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/export_model.h"
#include "cli/options/inference_options.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/packed_weights.h"
#include "lab/notes.h"
#include "model/huggingface.h"
#include "model/parameters.h"
#include "model/quantized_files.h"
#include "report/tables/typed_columns.h"
#include "train/adapter_files.h"
#include "train/checkpoint.h"
#include "train/checkpoint_parts.h"
#include "train/data_loader.h"
#include "train/evaluate.h"
#include "train/gptq.h"
#include "train/peft_config.h"
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
  InferenceOptions inference = InferenceOptions::without_base();
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
        fmt::format("--weights {}: expected int8, int4, nf4 or fp8 (2:4 is --sparse)", options.weights));
  if (!is_written && !wish.is_sparse)
    throw core::UsageError("quantize: name --weights int8|int4|nf4|fp8, or --sparse 2:4");
  if (wish.method == Method::rtn) return wish;
  if (wish.format != WeightFormat::int8 && wish.format != WeightFormat::int4)
    throw core::UsageError("--method gptq supports only int8 and int4");
  if (wish.is_sparse)
    throw core::UsageError("--sparse 2:4, --method gptq: GPTQ overwrites pruned weights; leave one out");
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

/// Of a model's files: weights, and an adapter's with its base's. A checkpoint has optimizer state beside
/// them.
std::uint64_t bytes_of(const fs::path& directory) {
  std::uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(directory)) {
    const bool is_state = file.path().filename().string().starts_with("optimizer");
    if (file.path().extension() == ".safetensors" && !is_state) bytes += file.file_size();
  }
  if (train::has_adapter(directory)) bytes += bytes_of(train::read_peft_config(directory).base);
  return bytes;
}

/// Sequences to evaluate on and to calibrate on; nullptr: none.
struct Batches {
  std::unique_ptr<train::EvalBatches> evaluation, calibration;
  std::uint64_t most = 0, samples = 0;  ///< of them
};
Batches batches_of(const QuantizeOptions& options, const Wish& wish, const lab::Point& point) {
  Batches batches;
  batches.most = static_cast<std::uint64_t>(parse_integer("--batches", options.batches, 1));
  batches.samples = static_cast<std::uint64_t>(parse_integer("--samples", options.samples, 1));
  if (options.data.empty()) return batches;
  const Texts texts = texts_of(options.data);
  const auto open = [&](const std::vector<fs::path>& shards) {
    return std::make_unique<train::EvalBatches>(shards, 1, point.seq,
                                                static_cast<std::uint32_t>(point.config.vocab));
  };
  batches.evaluation = open(texts.evaluation);
  if (wish.method == Method::rtn) return batches;
  batches.calibration = open(texts.calibration);
  if (batches.calibration->size() < batches.samples)
    throw core::InputError(
        fmt::format("--data: the calibration text has {} sequences of {} tokens, --samples asks for {}",
                    batches.calibration->size(), point.seq, batches.samples));
  return batches;
}

/// The model's weights: from its files one at a time, unless the session's are others.
model::WeightSource source_of(const LoadedModel& loaded, bool is_in_session) {
  if (is_in_session) {
    return [session = loaded.session.get()](const std::string& name, std::span<float> values) {
      session->read_whole(name, values);
    };
  }
  if (auto parts = train::open_parts(loaded.directory)) {
    return [shared = std::make_shared<train::PartFiles>(std::move(*parts))](
               const std::string& name, std::span<float> values) { shared->read(name, values); };
  }
  return model::open_weights(loaded.directory, loaded.point.config);
}

/// The same with 2 of each 4 numbers of the matrices of layers.
model::WeightSource pruned(const model::WeightSource& source, const model::ModelConfig& config) {
  std::set<std::string> matrices;
  for (const model::Parameter& parameter : model::parameters(config))
    if (model::is_layer_matrix(parameter.name, parameter.shape)) matrices.insert(parameter.name);
  return [source, matrices](const std::string& name, std::span<float> values) {
    source(name, values);
    if (matrices.contains(name)) core::prune_2_of_4(values);
  };
}

std::optional<train::Evaluation> evaluate(train::Session& session, const fs::path& directory,
                                          const Batches& batches, std::int64_t seq) {
  if (batches.evaluation) session.make_loss_engine(1, seq);
  session.load(directory);
  if (!batches.evaluation) return std::nullopt;
  return train::evaluate(session, *batches.evaluation, batches.most);
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
  const bool is_rounded = wish.format != WeightFormat::plain;
  std::string weights = is_rounded || !wish.is_sparse ? std::string(name_of(wish.format)) : "";
  std::string method = is_rounded ? std::string(core::name_of(wish.method)) : "";
  if (wish.is_sparse) {
    weights += is_rounded ? ", 2:4" : "2:4";
    method += is_rounded ? ", magnitude" : "magnitude";
  }
  Row row{.model = directory.string(), .weights = weights, .method = method, .bytes = bytes_of(directory)};
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
  const std::string seq = options.data.empty() ? "1" : options.seq;
  LoadedModel loaded = options.inference.describe("1", seq);
  const model::ModelConfig config = loaded.point.config;
  if (const WeightFormat stored = model::read_weight_format(loaded.directory); stored != WeightFormat::plain)
    throw core::InputError(
        fmt::format("{}: its weights are {} already; quantize the model that they were made from",
                    loaded.directory.string(), name_of(stored)));
  if (wish.format != WeightFormat::plain) model::check_format(config, wish.format);
  train::require_same_tokenizer(loaded.directory, {options.data.begin(), options.data.end()});
  const Batches batches = batches_of(options, wish, loaded.point);
  if (options.dry_run) {
    show_dry_run(fmt::format("quantize {}", loaded.directory.string()), {{"-o", options.output}});
    return 0;
  }
  train::verify_weights(loaded.directory, config);
  const bool has_adapter = train::has_adapter(loaded.directory);
  std::vector<Row> rows(1, row_of(loaded.directory, {}, {}));
  if (batches.evaluation || has_adapter) {
    loaded = options.inference.open("1", seq);
    rows[0] =
        row_of(loaded.directory, {}, evaluate(*loaded.session, loaded.directory, batches, loaded.point.seq));
  }
  model::PackedWeights packed;
  if (batches.calibration) {
    packed = train::quantize_by_gptq(
        *loaded.session, wish.dtype(), *batches.calibration, batches.samples,
        [&](std::int64_t layer) { lab::note("layer {} of {}", layer, config.layers); });
  }
  const bool is_in_session = has_adapter || !packed.empty();
  if (!is_in_session) loaded.session.reset();
  model::WeightSource source = source_of(loaded, is_in_session);
  if (wish.is_sparse) source = pruned(source, config);
  const bool is_plain_directory = !has_adapter && !train::open_parts(loaded.directory);
  const core::DType rest = is_plain_directory ? model::stored_dtype(loaded.directory) : core::DType::f32;
  std::optional<train::Evaluation> result;
  write_directory(options.output, [&](const fs::path& directory) {
    const model::TextEnds ends = copy_tokenizer(loaded.directory, directory);
    if (wish.format == WeightFormat::plain) {
      model::save_model(directory, config, source, rest, model::kMaxShardBytes, {}, ends);
    } else {
      model::save_quantized(directory, config, wish.format, source, packed, rest, ends);
    }
    if (!batches.evaluation) return;
    loaded.session.reset();
    compile::StepOptions step = loaded.point.step;
    step.base = wish.format;
    train::Session written(*loaded.backend, config, step);  // what was written is what is evaluated
    result = evaluate(written, directory, batches, loaded.point.seq);
  });
  rows.push_back(row_of(options.output, wish, result));
  Table table = columns().table(rows);
  if (result)
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
  line.add_option("--sparse", options->sparse, "Keep the 2 largest of every 4 weights of a row")
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
      "Embeddings, head, norms and biases stay as they are. eval, generate and serve\n"
      "read the directory, and train --lora trains adapters on it. docs/quantization.md\n"
      "names formats and tensors.\n\n"
      "Example: rooflm quantize --model out/ --weights int4 --data data/ -o out-int4/");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
