// Running a program on a backend: when ops run and where their tensors live.
#include "engines/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace rooflm::engines {
namespace {

using program::Op;
using program::Phase;
using program::Role;
using program::TensorId;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Whether a device may run the op beside those that follow.
bool runs_beside(const Op& op) { return op.lane != program::Lane::compute; }

double& time_of(StepTimes& times, Phase phase) {
  switch (phase) {
    case Phase::backward:
      return times.backward_s;
    case Phase::optimizer:
      return times.optimizer_s;
    default:
      return times.forward_s;
  }
}

}  // namespace

MemoryNeed memory_need(const program::Program& program, compile::EngineKind kind) {
  const passes::MemoryPlan plan = passes::plan_memory(program);
  return {.persistent_bytes = passes::persistent_bytes(program),
          .transient_bytes = kind == compile::EngineKind::fused ? plan.arena_bytes : plan.unshared_peak_bytes};
}

Engine::Engine(program::Program program, compile::EngineKind kind, TensorStore& store,
               double memory_limit_bytes)
    : program_(std::move(program)),
      kind_(kind),
      store_(&store),
      io_(store.backend()),
      plan_(passes::plan_memory(program_)) {
  program::check(program_);
  check_memory(memory_limit_bytes);
  address_.assign(program_.tensors.size(), nullptr);
  on_demand_.resize(program_.tensors.size());
  if (kind_ == compile::EngineKind::fused) {
    arena_ = backends::Allocation(store.backend(), static_cast<std::size_t>(plan_.arena_bytes));
    peak_transient_bytes_ = plan_.arena_bytes;
  }
  bind_tensors();
  make_steps();
  find_phases();
}

void Engine::check_memory(double limit_bytes) const {
  const MemoryNeed need = memory_need(program_, kind_);
  double new_persistent = 0;
  for (const program::Tensor& t : program_.tensors) {
    if (program::is_persistent(t.role) && !store_->contains(t.name))
      new_persistent += static_cast<double>(t.own_bytes());
  }
  const double total = static_cast<double>(need.total());
  const double free = store_->backend().free_bytes();
  const bool over_limit = limit_bytes > 0 && total > limit_bytes;
  const bool over_free = new_persistent + static_cast<double>(need.transient_bytes) > free;
  if (!over_limit && !over_free) return;
  throw core::OutOfMemory(
      fmt::format(
          "needs {} ({} of weights, optimizer state and inputs, {} of activations and gradients), {} is {}",
          core::format_bytes(total), core::format_bytes(static_cast<double>(need.persistent_bytes)),
          core::format_bytes(static_cast<double>(need.transient_bytes)),
          over_limit ? "the limit" : "free memory", core::format_bytes(over_limit ? limit_bytes : free)),
      total);
}

void Engine::bind_tensors() {
  for (std::size_t i = 0; i < program_.tensors.size(); ++i) {
    const program::Tensor& tensor = program_.tensors[i];
    if (tensor.view_of != program::kNone) continue;
    if (program::is_persistent(tensor.role)) {
      const bool is_own = tensor.role == Role::input || tensor.role == Role::result;
      const auto& entry = (is_own ? io_ : *store_).bind(tensor);
      if (entry.tensor.halved != tensor.halved) {
        throw std::logic_error(tensor.name + " is kept in halves, which this program does not know");
      }
      address_[i] = entry.memory.data();
    } else if (kind_ == compile::EngineKind::fused && plan_.offsets[i] >= 0) {
      address_[i] = static_cast<std::byte*>(arena_.data()) + plan_.offsets[i];
    }
  }
  for (std::size_t i = 0; i < program_.tensors.size(); ++i) {
    const TensorId base = program_.tensors[i].view_of;
    if (base != program::kNone) address_[i] = address_[static_cast<std::size_t>(base)];
  }
}

void Engine::make_steps() {
  steps_.resize(program_.ops.size());
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const Op& op = program_.ops[i];
    steps_[i].kernel = store_->backend().make_kernel(program_, op);
    steps_[i].in.resize(op.inputs.size());
    steps_[i].out.resize(op.outputs.size());
    if (kind_ == compile::EngineKind::fused) resolve(i);
  }
  if (kind_ == compile::EngineKind::fused) return;
  for (std::size_t id = 0; id < program_.tensors.size(); ++id) {
    const int last = plan_.lifetimes[id].last;
    if (last < 0 || program::is_persistent(program_.tensors[id].role)) continue;
    steps_[static_cast<std::size_t>(last)].frees.push_back(static_cast<TensorId>(id));
  }
}

/// Fills in the addresses of the op's operands.
void Engine::resolve(std::size_t index) {
  const Op& op = program_.ops[index];
  const auto fill = [&](const std::vector<TensorId>& ids, const std::vector<std::int64_t>& offsets,
                        std::vector<void*>& addresses) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      addresses[i] = nullptr;
      if (ids[i] == program::kNone) continue;
      const auto element = static_cast<std::int64_t>(core::size_of(program_.tensor(ids[i]).dtype));
      const std::int64_t offset = i < offsets.size() ? offsets[i] * element : 0;
      addresses[i] = static_cast<std::byte*>(address_[static_cast<std::size_t>(ids[i])]) + offset;
    }
  };
  fill(op.inputs, op.input_offset, steps_[index].in);
  fill(op.outputs, op.output_offset, steps_[index].out);
}

void Engine::run_op(std::size_t index, Observer* observer) {
  Step& step = steps_[index];
  if (kind_ == compile::EngineKind::eager) {
    for (const TensorId id : program_.ops[index].outputs) {
      if (id == program::kNone || address_[static_cast<std::size_t>(id)] != nullptr) continue;
      auto& memory = on_demand_[static_cast<std::size_t>(id)];
      memory = backends::Allocation(store_->backend(), static_cast<std::size_t>(program_.tensor(id).bytes()));
      address_[static_cast<std::size_t>(id)] = memory.data();
      live_bytes_ += program_.tensor(id).bytes();
      peak_transient_bytes_ = std::max(peak_transient_bytes_, live_bytes_);
      if (observer != nullptr) observer->on_allocate(program_, id, live_bytes_);
    }
    resolve(index);
  }
  if (observer != nullptr) observer->on_op_begin(program_, index);
  step.kernel({.in = step.in, .out = step.out});
  if (observer != nullptr) observer->on_op_end(program_, index);
  if (!step.frees.empty()) free_after(index, observer);
}

void Engine::free_after(std::size_t index, Observer* observer) {
  for (const TensorId id : steps_[index].frees) {
    on_demand_[static_cast<std::size_t>(id)] = backends::Allocation();
    address_[static_cast<std::size_t>(id)] = nullptr;
    live_bytes_ -= program_.tensor(id).bytes();
    if (observer != nullptr) observer->on_free(program_, id, live_bytes_);
  }
}

void Engine::setup() {
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    if (program_.ops[i].phase == Phase::setup) run_op(i, nullptr);
  }
  store_->backend().synchronize();
}

/// A step begins with a mark, and each stretch of ops of one phase ends with one.
void Engine::find_phases() {
  const auto append = [](std::vector<Phase>& phases, Phase phase) {
    if (phases.empty() || phases.back() != phase) phases.push_back(phase);
  };
  for (const Op& op : program_.ops) {
    if (op.phase == Phase::setup) continue;
    append(phases_, op.phase);
    if (!runs_beside(op)) append(recorded_phases_, op.phase);
  }
  stopwatch_ = store_->backend().make_stopwatch(phases_.size() + 1);  // a recording has fewer
}

/// `phases`: phases_ or recorded_phases_.
void Engine::submit(Observer* observer, const std::vector<Phase>& phases) {
  const bool records = &phases == &recorded_phases_;
  std::size_t stretch = 0;
  stopwatch_->mark(0);
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const Op& op = program_.ops[i];
    if (op.phase == Phase::setup) continue;
    const bool is_marked = !records || !runs_beside(op);
    if (is_marked && op.phase != phases[stretch]) stopwatch_->mark(++stretch);
    run_op(i, observer);
  }
  if (!phases.empty()) stopwatch_->mark(phases.size());
}

/// As submit, with marks that take no time from the ops.
void Engine::submit_recorded(Observer& observer) {
  std::size_t stretch = 0;
  stopwatch_->mark(0);
  observer.on_record_begin(program_);
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const Phase phase = program_.ops[i].phase;
    if (phase == Phase::setup) continue;
    if (phase != phases_[stretch]) stopwatch_->mark(++stretch);
    run_op(i, nullptr);
    observer.on_op_recorded(program_, i);
  }
  if (!phases_.empty()) stopwatch_->mark(phases_.size());
}

/// What to replay: nullptr where the device records nothing, where something is allocated in a step, for an
/// observer that is none for recordings, and in the first step.
backends::Recording* Engine::recording_for(Observer* observer) {
  if (!has_run_ || kind_ != compile::EngineKind::fused) return nullptr;
  auto* kept = observer == nullptr ? &recording_ : observer->recording();
  if (kept == nullptr) return nullptr;
  if (*kept == nullptr) {
    const auto submit_all = [&] {
      observer == nullptr ? submit(nullptr, recorded_phases_) : submit_recorded(*observer);
    };
    *kept = store_->backend().record(submit_all, observer != nullptr);
  }
  return kept->get();
}

StepTimes Engine::run(Observer* observer) {
  backends::Recording* recording = recording_for(observer);
  StepTimes times;
  if (observer != nullptr) observer->on_step_begin(program_);
  const double start = now_s();
  if (recording != nullptr) {
    recording->replay();
  } else {
    submit(observer, phases_);
  }
  times.submit_s = now_s() - start;
  store_->backend().synchronize();
  times.step_s = now_s() - start;
  has_run_ = true;
  const std::vector<Phase>& phases = recording != nullptr && observer == nullptr ? recorded_phases_ : phases_;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    time_of(times, phases[i]) += stopwatch_->elapsed_s(i, i + 1);
  }
  if (observer != nullptr) {
    if (recording != nullptr) observer->on_replayed(program_);
    observer->on_step_end(program_);
  }
  return times;
}

}  // namespace rooflm::engines
