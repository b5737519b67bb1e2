// The options of commands that load a model's weights: eval and generate.
#include "cli/inference_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/devices.h"
#include "cli/model_file.h"
#include "cli/values.h"
#include "core/error.h"
#include "train/checkpoint.h"

namespace rooflm::cli {

void InferenceOptions::add_to(CLI::App& app) {
  app.add_option("--model", model_, "Hugging Face directory, checkpoint, or output of rooflm train")
      ->type_name("DIR");
  app.add_option("--engine", run_.engine, "How ops run")
      ->type_name("eager|fused")
      ->capture_default_str()
      ->group("Run");
  app.add_option("--attention", run_.attention,
                 "How attention is computed (default: batched in eager, flash in fused)")
      ->type_name("looped|batched|flash")
      ->group("Run");
  app.add_option("--dtype", run_.dtype, "Compute dtype: fp32, bf16, fp16, on GPUs also tf32")
      ->type_name("DTYPE")
      ->capture_default_str()
      ->group("Run");
  app.add_option("--device", run_.device, "Where it runs")
      ->type_name("cpu|cuda[:N]")
      ->capture_default_str()
      ->group("Run");
  app.add_option("--threads", threads_, "Threads (0: one per core)")
      ->type_name("N")
      ->capture_default_str()
      ->group("Run");
  app.add_option("--memory-limit", memory_limit_, "Refuse to use more: 8GB, 8GiB (default: what is free)")
      ->type_name("SIZE")
      ->group("Run");
}

LoadedModel InferenceOptions::open(const std::string& batch, const std::string& seq) const {
  if (model_.empty()) throw core::UsageError("--model is missing: a directory with config.json and weights");
  ModelOptions model;
  model.model = model_;
  RunOptions run = run_;
  run.batch = batch;
  run.seq = seq;
  LoadedModel loaded;
  loaded.point = single_point(model, run);
  if (!is_model_directory(model_)) {
    throw core::UsageError(fmt::format(
        "--model {} has no weights; give a directory with config.json and model.safetensors", model_));
  }
  if (loaded.point.device == "null") {
    throw core::UsageError("--device null computes nothing: choose a device that does");
  }
  MachineOptions machine;
  machine.threads = threads_;
  const double limit = memory_limit_.empty() ? 0 : parse_bytes("--memory-limit", memory_limit_);
  loaded.directory = train::resolve_model_directory(model_);
  loaded.backend = make_backend(loaded.point.device, loaded.point.step.engine, machine.thread_count());
  loaded.session =
      std::make_unique<train::Session>(*loaded.backend, loaded.point.config, loaded.point.step, limit);
  return loaded;
}

}  // namespace rooflm::cli
