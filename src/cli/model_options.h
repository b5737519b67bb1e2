// The options that choose a model and how it runs, shared by the commands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compile/recipe.h"
#include "model/config.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace rooflm::cli {

/// `--model --arch --layers --heads --kv-heads --d-model --d-ff --vocab`, as typed; each may be a list.
struct ModelOptions {
  std::string model = "gpt2";
  std::string arch, layers, heads, kv_heads, d_model, d_ff, vocab;
  void add_to(CLI::App& app);
};

/// `--batch --seq --engine --attention --dtype --device --recompute --grad-accum`, as typed; each may be a
/// list.
struct RunOptions {
  std::string batch = "4";
  std::string seq = "64";
  std::string engine = "fused";
  std::string attention;  ///< empty: what the engine uses unless told otherwise
  std::string dtype = "fp32";
  std::string device = "cpu";
  std::string recompute = "none";
  std::string grad_accum = "1";
  void add_to(CLI::App& app);
};

/// `--seed --threads`, as typed.
struct MachineOptions {
  std::string seed = "0";
  std::string threads = "0";
  void add_to(CLI::App& app);
  [[nodiscard]] std::uint64_t seed_value() const;
  /// 0: one per core that this process may use.
  [[nodiscard]] int thread_count() const;
};

/// One configuration of a sweep, with everything checked.
struct Point {
  model::ModelConfig config;
  std::string device;
  std::int64_t batch = 0;  ///< sequences of one micro-batch
  std::int64_t seq = 0;
  compile::StepOptions step;
  /// Tokens of one training step: batch * seq * micro-batches.
  [[nodiscard]] std::int64_t tokens() const { return batch * seq * step.micro_batches; }
};

/// All combinations, in the order model, sizes, batch, seq, device, recompute, grad-accum, dtype, engine,
/// attention (the last changes fastest). Throws core::UsageError when any of them cannot be (sizes that do
/// not divide, a sequence beyond the positions of the model), core::InputError for bad model files,
/// core::Unavailable for dtypes that a device does not compute: before anything runs.
std::vector<Point> sweep(const ModelOptions& model, const RunOptions& run);

/// The same for commands that take no lists: core::UsageError when the options name more than one
/// configuration.
Point single_point(const ModelOptions& model, const RunOptions& run);

/// "gpt2 B=4 T=64 fp32 fused flash", for progress lines.
std::string describe(const Point& point);

}  // namespace rooflm::cli
