// The options of commands that load a model's weights: eval and generate.
#include "cli/options/inference_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "cli/values.h"
#include "core/error.h"
#include "core/names.h"
#include "lab/devices.h"
#include "lab/model_file.h"
#include "model/config.h"
#include "train/checkpoint.h"

namespace rooflm::cli {

void InferenceOptions::add_to(CommandLine& line) {
  line.add_option("--model", model_, "Hugging Face directory, checkpoint, or output of rooflm train")
      .type_name("DIR");
  config_.add_to(line);
  line.add_option("--memory-limit", memory_limit_, "Maximum memory to use: 8GB, 8GiB (default: free memory)")
      .type_name("SIZE")
      .group("Run");
}

LoadedModel InferenceOptions::describe(const std::string& batch, const std::string& seq,
                                       const lab::Ranks& ranks) const {
  if (model_.empty()) throw core::UsageError("--model is missing: a directory with config.json and weights");
  const auto& presets = model::preset_names();
  std::error_code ignored;
  if (!std::filesystem::exists(model_, ignored) && std::ranges::find(presets, model_) == presets.end()) {
    const std::string near = core::nearest_name(model_, presets);
    throw core::UsageError(
        fmt::format("{} {}: no such directory; give one with config.json and model.safetensors{}", option_,
                    model_, near.empty() ? "" : "; did you mean '" + near + "'?"));
  }
  ConfigOptions config = config_;
  config.set("model", model_);
  config.set("batch", batch);
  config.set("seq", seq);
  LoadedModel loaded;
  loaded.point = config.single();
  if (!lab::is_model_directory(model_)) {
    throw core::UsageError(fmt::format(
        "{} {} has no weights; give a directory with config.json and model.safetensors", option_, model_));
  }
  lab::require_runs(loaded.point.device, "computed");
  if (config_.has("tp")) {
    lab::take_place(loaded.point, ranks);
  } else {
    lab::share_threads(loaded.point, ranks);
  }
  lab::agree(ranks, lab::values_of(loaded.point));
  loaded.point.device_ranks = lab::agree_on_devices(ranks, loaded.point.device);
  loaded.directory = train::resolve_model_directory(model_);
  return loaded;
}

LoadedModel InferenceOptions::open(const std::string& batch, const std::string& seq,
                                   const lab::Ranks& ranks) const {
  LoadedModel loaded = describe(batch, seq, ranks);
  const double limit = memory_limit_.empty() ? 0 : parse_bytes("--memory-limit", memory_limit_);
  loaded.backend = lab::make_backend(loaded.point);
  const bool shares_layers = loaded.point.step.sharding.tensor > 1;
  if (shares_layers) lab::join_backend(*loaded.backend, loaded.point, ranks);
  loaded.session = std::make_unique<train::Session>(*loaded.backend, loaded.point.config, loaded.point.step,
                                                    limit, shares_layers ? ranks.get() : nullptr);
  return loaded;
}

}  // namespace rooflm::cli
