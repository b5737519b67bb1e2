// A model on a device: its weights, its optimizer state, and the engines that train and evaluate it.
#include "train/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "model/forward.h"
#include "model/huggingface.h"
#include "model/parameters.h"
#include "model/quantized_files.h"
#include "program/loss_scale.h"
#include "train/adapter_files.h"
#include "train/checkpoint_parts.h"
#include "train/parts.h"

namespace rooflm::train {
namespace {

constexpr const char* kLossScale = "loss_scale";

engines::Engine& required(const std::unique_ptr<engines::Engine>& engine, const char* what) {
  if (!engine) throw std::logic_error(fmt::format("the {} engine was not made", what));
  return *engine;
}

/// Not every stage of a pipeline has tokens, or targets.
void write_ids(engines::Engine& engine, const std::string& name, std::span<const std::int32_t> ids) {
  if (engine.program().find(name) != program::kNone) engine.io().write<std::int32_t>(name, ids);
}

}  // namespace

std::array<float, 4> optimizer_hyper(const passes::OptimizerOptions& options, double lr, std::int64_t t) {
  const auto correction = [t](double beta) {
    return static_cast<float>(1 - std::pow(beta, static_cast<double>(t)));
  };
  return {static_cast<float>(lr), correction(options.beta1), correction(options.beta2), 0.0F};
}

Session::Session(backends::Backend& backend, model::ModelConfig config, compile::StepOptions step,
                 double memory_limit_bytes, ranks::Transport* ranks)
    : config_(std::move(config)),
      step_(std::move(step)),
      memory_limit_bytes_(memory_limit_bytes),
      ranks_(ranks),
      store_(backend) {
  model::validate(config_);
  step_.adapters = passes::find_adapters(config_, step_.lora);
}

std::unique_ptr<engines::Engine> Session::make_engine(program::Program program, engines::TensorStore* caches,
                                                      double taken_bytes) {
  double limit = memory_limit_bytes_;
  if (limit > 0) {  // what other engines use, and what this program does not count, is taken already
    limit -= taken_bytes;
    for (const auto* other : {training_.get(), loss_.get()}) {
      if (other == nullptr) continue;
      limit -= static_cast<double>(engines::memory_need(other->program(), step_.engine).transient_bytes);
    }
    for (const auto& [name, entry] : store_.entries()) {
      if (program.find(name) == program::kNone) limit -= static_cast<double>(entry.memory.bytes());
    }
    limit = std::max(limit, 1.0);  // 0 would mean no limit
  }
  auto engine = std::make_unique<engines::Engine>(std::move(program), step_.engine, store_, limit, caches);
  if (has_weights_) engine->setup();
  return engine;
}

void Session::make_training_engine(std::int64_t batch, std::int64_t seq) {
  training_.reset();
  training_seq_ = seq;
  training_ = make_engine(
      compile::training_step(model::forward(config_, batch, seq / step_.sharding.context), step_));
}

void Session::make_loss_engine(std::int64_t batch, std::int64_t seq) {
  loss_.reset();
  const auto weights = training_ == nullptr ? compile::Weights::own : compile::Weights::of_training;
  loss_ = make_engine(compile::inference_step(model::forward(config_, batch, seq), step_, weights));
}

void Session::initialise(std::uint64_t seed) {
  bind_weights();
  for (const model::Parameter& p : model::parameters(config_)) {
    store_.write_from(p.name, [&](std::int64_t first, std::span<float> out) {
      model::initial_values(p, config_, seed, first, out);
    });
  }
  initialise_adapters(seed);
}

void Session::initialise_adapters(std::uint64_t seed) {
  const bool has_magnitudes = !step_.adapters.empty() && step_.adapters.front().is_dora;
  if (has_magnitudes) copy_weights();  // setup computes the lengths of rows, which they begin as
  train::initialise_adapters(
      step_.adapters, config_, seed,
      [this](const std::string& name, std::span<float> values) {
        store_.read_bytes(name, std::as_writable_bytes(values));
      },
      [this](const std::string& name, std::span<const float> values) { write_whole(name, values); });
  copy_weights();
}

void Session::load_whole(const std::filesystem::path& directory) {
  const auto keep = [this](const std::string& name, std::span<const float> values) {
    write_whole(name, values);
  };
  // Codes of files are kept where programs read the same.
  const bool is_own = !step_.adapters.empty() && has_adapter(directory);
  const std::filesystem::path base = is_own ? read_peft_config(directory).base : directory;
  const bool keeps_codes = step_.base != core::WeightFormat::plain && !has_adapter(base) &&
                           model::read_weight_format(base) == step_.base;
  const model::PackedSink packed = [this](const std::string& name, std::span<const std::byte> codes) {
    store_.write_packed(name, codes);
  };
  load_merged(base, config_, keep, keeps_codes ? packed : model::PackedSink());
  if (!is_own) return;
  load_adapters(directory, step_.adapters, keep);
}

void Session::load(const std::filesystem::path& directory) {
  bind_weights();
  if (const auto parts = open_parts(directory)) {
    std::vector<float> values;
    for (const model::Parameter& p : model::parameters(config_)) {
      values.resize(static_cast<std::size_t>(p.shape.numel()));
      parts->read(p.name, values);
      write_whole(p.name, values);
    }
    return copy_weights();
  }
  load_whole(directory);
  copy_weights();
}

/// A training engine has bound its weights; without one they are those of a rank that computes logits.
void Session::bind_weights() {
  if (training_ != nullptr) return;
  const auto own = compile::inference_step(model::forward(config_, 1, 1, model::Head::logits), step_);
  double bytes = 0;
  for (const program::Tensor& tensor : own.tensors) {
    if (tensor.role == program::Role::weight && !store_.contains(tensor.name))
      bytes += static_cast<double>(tensor.own_bytes());
  }
  if (const double free = store_.backend().free_bytes(); bytes > free) {
    throw core::OutOfMemory(fmt::format("needs {} of weights, free memory is {}", core::format_bytes(bytes),
                                        core::format_bytes(free)),
                            bytes);
  }
  for (const program::Tensor& tensor : own.tensors) {
    if (tensor.role == program::Role::weight && tensor.view_of == program::kNone) store_.bind(tensor);
  }
}

std::vector<Session::StateTensor> Session::optimizer_state() const {
  std::map<std::string, StateTensor> states;
  if (ranks_ == nullptr) {
    for (const auto& [name, entry] : store_.entries()) {
      if (entry.tensor.role == program::Role::optimizer_state)
        states[name] = {name, entry.tensor.shape, entry.tensor.dtype};
    }
  } else {
    compile::StepOptions whole = step_;
    whole.sharding = {};
    whole.rank = {};
    for (const program::Tensor& tensor :
         compile::training_step(model::forward(config_, 1, 1), whole).tensors) {
      if (tensor.role == program::Role::optimizer_state)
        states[tensor.name] = {tensor.name, tensor.shape, tensor.dtype};
    }
  }
  std::vector<StateTensor> state;
  for (const auto& [name, tensor] : states) state.push_back(tensor);
  return state;
}

void Session::read_whole(const std::string& name, std::span<float> values) const {
  if (ranks_ == nullptr) return store_.read_bytes(name, std::as_writable_bytes(values));
  gather_parts(*ranks_, store_, step_.rank, name, values);
}

void Session::end_parts() const {
  if (ranks_ != nullptr) end_gathering(*ranks_);
}

void Session::serve_parts() const { train::serve_parts(*ranks_, store_, step_.rank); }

core::OnProgress Session::keep_waiting() const {
  return ranks_ == nullptr ? core::OnProgress() : make_keep_waiting(*ranks_);
}

void Session::copy_weights() {
  has_weights_ = true;
  skipped_updates_.reset();
  for (auto* engine : {training_.get(), loss_.get()}) {
    if (engine != nullptr) engine->setup();
  }
}

void Session::set_micro_batch(int index, const Batch& batch) {
  auto& engine = required(training_, "training");
  const auto write = [&](const char* name, const std::vector<std::int32_t>& ids) {
    const std::string input = compile::micro_batch_name(name, index);
    if (step_.sharding.context == 1) return write_ids(engine, input, ids);
    write_ids(engine, input,
              step_.sharding.pieces_of(step_.rank).cut(std::span<const std::int32_t>(ids), training_seq_));
  };
  write("tokens", batch.tokens);
  write("targets", batch.targets);
}

void Session::read_loss_scale(Update& update) {
  if (!store_.contains(kLossScale)) return;
  const auto state = store_.read<float>(kLossScale);
  update.loss_scale = program::loss_scale_of(state.data());
  update.skipped_updates = static_cast<std::int64_t>(state.at(program::kSkippedUpdates));
}

Session::Update Session::update(double lr, std::int64_t t) {
  auto& engine = required(training_, "training");
  Update update;
  if (!skipped_updates_) {
    read_loss_scale(update);
    skipped_updates_ = update.skipped_updates;
  }
  // Moments know nothing of updates that were skipped.
  const auto hyper = optimizer_hyper(step_.optimizer, lr, t - *skipped_updates_);
  engine.io().write<float>("hyper", hyper);
  update.times = engine.run();
  update.loss = read_loss(engine);
  if (step_.optimizer.clip_norm > 0) update.grad_norm = engine.io().read<float>("grad_norm").at(0);
  read_loss_scale(update);
  update.is_skipped = update.skipped_updates > *skipped_updates_;
  skipped_updates_ = update.skipped_updates;
  return update;
}

/// The last rank of every split has it.
double Session::read_loss(engines::Engine& engine) const {
  const bool is_here = engine.program().find("loss") != program::kNone;
  const double own = is_here ? engine.io().read<float>("loss").at(0) : 0;
  if (ranks_ == nullptr || step_.sharding.pipeline == 1) return own;
  return ranks::from_rank(*ranks_, ranks_->size() - 1, own);
}

double Session::loss(const Batch& batch) {
  auto& engine = required(loss_, "loss");
  write_ids(engine, "tokens", batch.tokens);
  write_ids(engine, "targets", batch.targets);
  engine.run();
  return read_loss(engine);
}

}  // namespace rooflm::train
