// Runs a program on a backend: decides when ops run and where their tensors live.
#include "engines/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "program/groups.h"
#include "program/ops.h"

namespace rooflm::engines {
namespace {

using program::Op;
using program::Phase;
using program::Role;
using program::TensorId;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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
  return {.persistent_bytes = passes::persistent_bytes(program),
          .transient_bytes = kind == compile::EngineKind::fused ? passes::plan_memory(program).arena_bytes
                                                                : passes::unshared_peak_bytes(program)};
}

Engine::Engine(program::Program program, compile::EngineKind kind, TensorStore& store,
               double memory_limit_bytes, TensorStore* caches)
    : program_(std::move(program)),
      kind_(kind),
      store_(&store),
      caches_(caches),
      io_(store.backend()),
      plan_(passes::plan_memory(program_)) {
  program::check(program_);
  check_memory(memory_limit_bytes);
  address_.assign(program_.tensors.size(), nullptr);
  on_demand_.resize(program_.tensors.size());
  find_shared();
  if (kind_ == compile::EngineKind::fused) {
    const bool is_shared = std::ranges::find(is_shared_, true) != is_shared_.end();
    arena_ =
        backends::Allocation(store.backend(), static_cast<std::size_t>(plan_.arena_bytes),
                             is_shared ? backends::Reach::shared : backends::Reach::own, shared_layout());
    peak_transient_bytes_ = plan_.arena_bytes;
  }
  bind_tensors();
  make_steps();
  find_phases();
  has_collectives_ = std::ranges::any_of(program_.ops, is_of_side_thread);
}

TensorStore& Engine::store_of(Role role) {
  if (role == Role::input || role == Role::result) return io_;
  if (role != Role::cache) return *store_;
  return caches_ != nullptr ? *caches_ : io_;
}

void Engine::check_memory(double limit_bytes) {
  const bool has_arena = kind_ == compile::EngineKind::fused;
  const MemoryNeed need{
      .persistent_bytes = passes::persistent_bytes(program_),
      .transient_bytes = (has_arena ? plan_.arena_bytes : plan_.unshared_peak_bytes) + received_bytes()};
  double new_persistent = 0;
  for (const program::Tensor& t : program_.tensors) {
    if (program::is_persistent(t.role) && !store_of(t.role).contains(t.name))
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

void Engine::find_shared() {
  is_shared_.assign(program_.tensors.size(), false);
  const auto share = [this](const std::vector<TensorId>& ids) {
    for (const TensorId id : ids) {
      if (id == program::kNone) continue;
      const TensorId base = program_.tensor(id).view_of;
      is_shared_[static_cast<std::size_t>(base == program::kNone ? id : base)] = true;
    }
  };
  for (const Op& op : program_.ops) {
    if (!program::is_collective(op) || program::is_message(op)) continue;
    if (program::group_of(op) != program::Group::data) continue;
    share(op.inputs);
    share(op.outputs);
  }
}

/// FNV-1a hash of the arena offsets of the tensors that collectives use.
std::uint64_t Engine::shared_layout() const {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < is_shared_.size(); ++i) {
    if (!is_shared_[i] || plan_.offsets[i] < 0) continue;
    for (const std::uint64_t value : {std::uint64_t{i}, static_cast<std::uint64_t>(plan_.offsets[i])})
      hash = (hash ^ value) * 0x100000001b3;
  }
  return hash;
}

/// Bytes of the receive buffer: the most that the copies of one collective need.
std::int64_t Engine::received_bytes() const {
  const auto& ways = store_->backend().collective_ways();
  if (std::ranges::find(ways, backends::CollectiveWay::copy_engine) == ways.end()) return 0;
  std::int64_t most = 0;
  for (const Op& op : program_.ops) {
    if (!program::is_collective(op) || program::is_message(op)) continue;
    if (program::group_of(op) != program::Group::data || op.def->name == program::ops::kAllGather.name)
      continue;
    most = std::max(most, program::payload_bytes(program_, op));
  }
  return most;
}

void Engine::set_way(backends::CollectiveWay way) {
  if (way == way_) return;
  const auto& known = store_->backend().collective_ways();
  if (std::ranges::find(known, way) == known.end())
    throw std::logic_error(fmt::format("collectives cannot be '{}' here", backends::name_of(way)));
  way_ = way;
  marked_recording_.reset();
}

void Engine::bind_tensors() {
  for (std::size_t i = 0; i < program_.tensors.size(); ++i) {
    const program::Tensor& tensor = program_.tensors[i];
    if (tensor.view_of != program::kNone) continue;
    if (program::is_persistent(tensor.role)) {
      const auto& entry =
          store_of(tensor.role).bind(tensor, is_shared_[i] ? backends::Reach::shared : backends::Reach::own);
      if (entry.tensor.halves != tensor.halves) {
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

/// Allocates the outputs of an eager op.
void Engine::prepare(std::size_t index, Observers observers) {
  if (kind_ != compile::EngineKind::eager) return;
  for (const TensorId id : program_.ops[index].outputs) {
    if (id == program::kNone || address_[static_cast<std::size_t>(id)] != nullptr) continue;
    auto& memory = on_demand_[static_cast<std::size_t>(id)];
    memory = backends::Allocation(store_->backend(), static_cast<std::size_t>(program_.tensor(id).bytes()));
    address_[static_cast<std::size_t>(id)] = memory.data();
    live_bytes_ += program_.tensor(id).bytes();
    peak_transient_bytes_ = std::max(peak_transient_bytes_, live_bytes_);
    for (Observer* observer : observers) observer->on_allocate(program_, id, live_bytes_);
  }
  resolve(index);
}

void Engine::run_op(std::size_t index, Observers observers) {
  Step& step = steps_[index];
  prepare(index, observers);
  for (Observer* observer : observers) observer->on_op_begin(program_, index);
  step.kernel({.in = step.in, .out = step.out});
  for (Observer* observer : observers) observer->on_op_end(program_, index);
  if (!step.frees.empty()) free_after(index, observers);
}

void Engine::free_after(std::size_t index, Observers observers) {
  for (const TensorId id : steps_[index].frees) {
    on_demand_[static_cast<std::size_t>(id)] = backends::Allocation();
    address_[static_cast<std::size_t>(id)] = nullptr;
    live_bytes_ -= program_.tensor(id).bytes();
    for (Observer* observer : observers) observer->on_free(program_, id, live_bytes_);
  }
}

void Engine::setup() {
  store_->backend().set_collective_way(way_);
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    if (program_.ops[i].phase == Phase::setup) run_op(i, {});
  }
  store_->backend().synchronize();
}

/// Lists the phases of a step. A stopwatch mark precedes the first; each phase ends with another.
void Engine::find_phases() {
  const auto append = [](std::vector<Phase>& phases, Phase phase) {
    if (phases.empty() || phases.back() != phase) phases.push_back(phase);
  };
  for (const Op& op : program_.ops) {
    if (op.phase == Phase::setup) continue;
    append(phases_, op.phase);
    if (!runs_beside(op)) append(recorded_phases_, op.phase);
    if (!is_of_side_thread(op)) append(own_phases_, op.phase);
  }
  stopwatch_ = store_->backend().make_stopwatch(agreed_mark() + 1);  // a recording needs fewer
}

/// The phases between the marks that the stopwatch took.
const std::vector<Phase>& Engine::phases_of(const backends::Recording* recording, Observers observers) const {
  if (recording != nullptr) return observers.empty() ? recorded_phases_ : phases_;
  return runs_side_thread(observers) ? own_phases_ : phases_;
}

void Engine::forget_others() {
  std::erase_if(recordings_, [this](const auto& kept) { return kept.first != std::pair(order_, way_); });
  if (order_ == Order::program) side_.reset();
}

/// Whether the step does more than a forward pass.
bool Engine::writes_weights() const {
  return std::ranges::any_of(phases_, [](Phase phase) { return phase != Phase::forward; });
}

/// The recording to replay. nullptr in the first step, if the device cannot record, if a step allocates, or
/// if an observer must see each submission.
backends::Recording* Engine::recording_for(Observers observers) {
  if (!has_run_ || kind_ != compile::EngineKind::fused) return nullptr;
  const auto wants_marks = [](const Observer* observer) { return observer->wants_marks(); };
  if (!std::all_of(observers.begin(), observers.end(), wants_marks)) return nullptr;
  const bool with_marks = !observers.empty();
  auto& kept = with_marks ? marked_recording_ : recordings_[{order_, way_}];
  if (kept == nullptr) {
    if (with_marks) op_ends_ = store_->backend().make_stopwatch(program_.ops.size() + 1);
    kept = store_->backend().record(
        [&](const std::function<void(std::size_t)>& submitted) { submit_recorded(with_marks, submitted); },
        with_marks || order_ == Order::program ? backends::Overlap::none
        : writes_weights()                     ? backends::Overlap::lanes
                                               : backends::Overlap::starts);
  }
  return kept.get();
}

std::vector<ReplayedOp> Engine::replayed_ops() const {
  std::vector<ReplayedOp> ops;
  ops.reserve(program_.ops.size());
  std::size_t before = 0;
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    if (program_.ops[i].phase == Phase::setup) continue;
    const double start_s = before == 0 ? 0 : op_ends_->elapsed_s(0, before);
    ops.push_back({.op = i, .start_s = start_s, .elapsed_s = op_ends_->elapsed_s(before, i + 1)});
    before = i + 1;
  }
  return ops;
}

/// Synchronises the clocks: a moment just before a step that both the device's and the host's clock know.
/// With it the start of the step on the device can be told in host time. Takes about 10 us. Nothing if the
/// host takes the marks.
std::optional<double> Engine::agree_on_time() {
  if (!stopwatch_->is_on_device()) return std::nullopt;
  stopwatch_->mark(agreed_mark());
  store_->backend().synchronize();
  return now_s();
}

/// Submits a step and waits for it. Fills in everything but the phase times.
StepTimes Engine::run_once(backends::Recording* recording, Observers observers, Start start) {
  StepTimes times;
  std::unique_ptr<backends::Hold> hold;
  // A device that begins before the per-op marks are submitted would take the first marks late.
  const bool waits = start == Start::when_submitted || !observers.empty();
  if (recording != nullptr && waits) hold = store_->backend().hold();
  const std::optional<double> agreed = recording == nullptr ? agree_on_time() : std::nullopt;
  const double submits = now_s();
  double begin = submits;
  exposed_s_ = 0;
  const auto let_begin = [&] {
    const double now = now_s();
    times.was_held = hold != nullptr && hold->release();
    if (times.was_held) begin = now;
  };
  if (recording != nullptr) {
    recording->replay(let_begin);
  } else if (runs_side_thread(observers)) {
    submit_beside(observers);
  } else {
    submit(observers);
  }
  times.submit_s = now_s() - submits;
  store_->backend().synchronize();
  times.step_s = now_s() - begin;
  if (agreed) times.wait_s = std::max(0.0, stopwatch_->elapsed_s(agreed_mark(), 0) - (begin - *agreed));
  times.exposed_s = exposed_s_;
  times.begin_ns = std::llround(begin * core::kGiga);
  return times;
}

StepTimes Engine::run(Observers observers, Start start) {
  store_->backend().set_collective_way(way_);
  backends::Recording* recording = recording_for(observers);
  for (Observer* observer : observers) observer->on_step_begin(program_);
  StepTimes times = run_once(recording, observers, start);
  has_run_ = true;
  const std::vector<Phase>& phases = phases_of(recording, observers);
  for (std::size_t i = 0; i < phases.size(); ++i) {
    time_of(times, phases[i]) += stopwatch_->elapsed_s(i, i + 1);
  }
  if (observers.empty()) return times;
  if (recording != nullptr) {
    const std::vector<ReplayedOp> ops = replayed_ops();
    for (Observer* observer : observers) observer->on_replayed(program_, ops, times.begin_ns);
  }
  for (Observer* observer : observers) observer->on_step_end(program_);
  return times;
}

std::vector<backends::KernelInfo> Engine::kernels() const {
  std::vector<backends::KernelInfo> infos;
  for (const Step& step : steps_) infos.push_back(step.kernel.info);
  return infos;
}

std::string Engine::library_of(const program::OpDef& op) const {
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    if (program_.ops[i].is(op)) return kernel(i).library;
  }
  return {};
}

}  // namespace rooflm::engines
