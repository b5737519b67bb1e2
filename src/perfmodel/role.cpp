// One rank of a kind of role: its program, priced and run in time.
#include "perfmodel/role.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "compile/passes/overlap.h"
#include "compile/planned/async_tensor.h"
#include "core/error.h"
#include "core/scope.h"
#include "model/forward.h"
#include "perfmodel/kernel_workspaces.h"
#include "program/groups.h"
#include "program/ops.h"
#include "program/update.h"

namespace rooflm::perfmodel {
namespace {

using compile::Rewrite;
using program::Group;
using program::Op;
using program::Phase;
using program::Program;

/// Every direction in which the step is split must show in the program: nothing is priced that it does not
/// have.
void require_split(const Program& program, const compile::Sharding& sharding, int stage) {
  const auto expect = [&](Group group, int parts, std::string_view what) {
    if (parts <= 1) return;
    const bool found = std::ranges::any_of(program.ops, [&](const Op& op) {
      return (program::is_collective(op) || passes::is_row_copy(op)) && program::group_of(op) == group;
    });
    if (!found) {
      throw core::Unavailable(
          fmt::format("{} {} is not planned yet: no program is made of it (stage {})", what, parts, stage));
    }
  };
  expect(Group::data, sharding.data_ranks(), "--dp");
  expect(Group::context, sharding.context, "--cp");
  expect(Group::expert, sharding.expert, "--ep");
  expect(Group::tensor, sharding.tensor, "--tp");
  expect(Group::pipeline, sharding.pipeline, "--pp");
}

/// What a record says of this kind of work.
OpTime calibrated(OpTime time, const Op& op, const Setting& setting) {
  const auto found = setting.calibration.find(std::string(program::name_of(op.def->work)));
  if (found == setting.calibration.end()) return time;
  for (const auto member :
       {&OpTime::seconds, &OpTime::work_s, &OpTime::moved_s, &OpTime::hidden_s, &OpTime::launch_s})
    time.*member *= found->second;
  time.basis = Basis::calibrated;
  return time;
}

}  // namespace

OpTime time_alone(const Program& program, const Op& op, const compile::Sharding& sharding,
                  const Setting& setting, const OpTimes& times) {
  if (moves_between_ranks(op)) return collective_time(program, op, sharding, setting);
  return calibrated(times.time_of(program, op), op, setting);
}

namespace {

/// An update that reads the gradients of all ranks (passes/sum_in_update.h) takes as long as its memory or
/// the link needs, whichever is slower.
OpTime with_link(OpTime time, const Program& program, const Op& op, const PlanPoint& point,
                 const Setting& setting) {
  if (!op.attrs.flag("sums")) return time;
  const program::UpdateView update(op);
  const Ranks ranks = ranks_of(program::group_of(op), point.step.sharding);
  double bytes = 0;
  for (std::size_t i = 0; i < update.count(); ++i) {
    const auto size = static_cast<double>(core::size_of(program.tensor(update.gradient(i)).dtype));
    bytes += (ranks.size - 1) * size * static_cast<double>(program.shape(update.weight(i)).numel());
  }
  time.seconds =
      std::max(time.seconds, collective_seconds(setting.cluster, Collective::point_to_point, bytes, ranks));
  return time;
}

/// All of a phase, and what is of no layer: embedding, or last norm, head and loss.
struct PhaseSeconds {
  double all_s = 0, end_s = 0;
};

/// Seconds of the compute lane in a phase of the last micro-batch. Chunks of the loss come with their
/// gradients, so each op counts with the gap before it.
PhaseSeconds phase_seconds(const Program& program, const Timeline& timeline, Phase phase, int micro_batch) {
  PhaseSeconds sum;
  double last_s = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.lane != program::Lane::compute || op.phase == Phase::setup) continue;
    const double end_s = timeline.spans[i].end_s;
    if (op.phase == phase && op.micro_batch == micro_batch) {
      sum.all_s += end_s - last_s;
      if (!core::Scope(op.scope).layer()) sum.end_s += end_s - last_s;
    }
    last_s = end_s;
  }
  return sum;
}

/// What is exposed until the first micro-batch's last op of the compute lane.
double first_exposed_seconds(const Program& program, const Timeline& timeline) {
  double end_s = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const bool is_pass = op.phase == Phase::forward || op.phase == Phase::backward;
    if (is_pass && op.lane == program::Lane::compute && op.micro_batch == 0) end_s = timeline.spans[i].end_s;
  }
  double exposed_s = 0;
  for (const IdleSpan& span : timeline.idle)
    if (span.cause == IdleCause::exposed_communication && span.end_s <= end_s)
      exposed_s += span.end_s - span.start_s;
  return exposed_s;
}

/// Seconds of the collectives in the backward pass of a micro-batch, of the lane that has most.
double backward_link_seconds(const Program& program, std::span<const double> seconds, int micro_batch) {
  std::map<program::Lane, double> lanes;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const bool counts = op.phase == Phase::backward && op.micro_batch == micro_batch;
    if (counts && program::is_collective(op) && op.lane != program::Lane::compute)
      lanes[op.lane] += seconds[i];
  }
  double most = 0;
  for (const auto& [lane, sum] : lanes) most = std::max(most, sum);
  return most;
}

/// `layers`: of each part of the model.
Program program_of(const PlanPoint& point, Forwards& forwards, int stage, int micro_batches,
                   std::int64_t layers) {
  compile::StepOptions options = point.step;
  model::ModelConfig config = point.config;
  options.sharding = built_sharding(point.step.sharding);
  config.padded_vocab = planned_vocabulary(config, options.sharding);
  config.layers = layers * options.sharding.parts() - (options.sharding.short_ends ? 2 : 0);
  options.micro_batches = micro_batches;
  options.adapters = passes::find_adapters(config, options.lora);  // of as many layers
  options.rank = {.tensor = 0, .data = 0, .pipeline = built_stage_of(point.step.sharding, stage)};
  return compile::training_step(forwards.of(point, config, options), options);
}

/// Stages of a pipeline that are built: the first, one between, the last.
constexpr int kBuiltStages = 3;

}  // namespace

const compile::RankForward& Forwards::of(const PlanPoint& point, const model::ModelConfig& config,
                                         const compile::StepOptions& options) {
  const compile::Sharding& sharding = options.sharding;
  const Key key{.layers = config.layers,
                .batch = point.micro_batch,
                .seq = point.seq / sharding.context,
                .tensor = sharding.tensor,
                .pipeline = sharding.pipeline,
                .interleave = sharding.interleave,
                .stage = options.rank.pipeline,
                .is_sequence_parallel = sharding.sequence_parallel,
                .is_vocab_parallel = sharding.vocab_parallel,
                .has_short_ends = sharding.short_ends,
                .is_split = sharding.ranks() > 1,
                .lora = options.lora};
  const auto [entry, is_new] = known_.try_emplace(key);
  if (is_new)
    entry->second = compile::rank_forward(model::forward(config, point.micro_batch, key.seq), options);
  return entry->second;
}

compile::Sharding built_sharding(compile::Sharding sharding) {
  sharding.pipeline = std::min(sharding.pipeline, kBuiltStages);
  return sharding;
}

int built_stage_of(const compile::Sharding& sharding, int stage) {
  if (sharding.pipeline <= kBuiltStages || stage == 0) return stage;
  return stage == sharding.pipeline - 1 ? kBuiltStages - 1 : 1;
}

void RoleStep::add(const RoleStep& other, double times) {
  Timeline& t = timeline;
  const Timeline& o = other.timeline;
  for (const auto member : {&Timeline::step_s, &Timeline::busy_s, &Timeline::slowed_s, &Timeline::exposed_s,
                            &Timeline::host_s, &Timeline::waiting_s, &Timeline::communication_s})
    t.*member += times * o.*member;
  for (const auto member :
       {&RoleStep::forward_s, &RoleStep::backward_s, &RoleStep::end_forward_s, &RoleStep::end_backward_s,
        &RoleStep::backward_link_s, &RoleStep::first_exposed_s, &RoleStep::launched_s})
    this->*member += times * other.*member;
  for (const auto member :
       {&RankMemory::weight_bytes, &RankMemory::optimizer_bytes, &RankMemory::gradient_bytes,
        &RankMemory::activation_bytes, &RankMemory::workspace_bytes, &RankMemory::gap_bytes,
        &RankMemory::saved_bytes, &RankMemory::saved_by_head_bytes})
    memory.*member += times * other.memory.*member;
  for (const auto& [name, time] : other.work) {
    WorkTime& own = work[name];
    own.seconds += times * time.seconds;
    own.matmul_flop += times * time.matmul_flop;
    own.bytes += times * time.bytes;
    own.sent_bytes += times * time.sent_bytes;
    own.ops += std::llround(times * static_cast<double>(time.ops));
  }
  mix.add(other.mix, times);
  uncertain_s += times * other.uncertain_s;
  priced_s += times * other.priced_s;
  basis = weaker(basis, other.basis);
}

namespace {

/// A program whose ops are priced, at the clock of the tables.
struct Priced {
  Program program{};
  /// The same with collectives over the network on kNetworkLane, where others stay in the node; else empty.
  Program by_link{};
  std::vector<OpTime> times{};
  PowerMix mix{};
};

}  // namespace

void add_to_mix(PowerMix& mix, const Op& op, const OpTime& time) {
  if (op.phase != Phase::forward && op.phase != Phase::backward) return;
  PowerMix::Arithmetic& arithmetic = mix.arithmetic[time.most_share];
  (time.work_s > time.moved_s ? arithmetic.seconds : mix.other_s) += time.seconds;
  arithmetic.joule += time.core_j;
  const double moving_s = time.seconds - time.launch_s;
  if (time.hidden_s > 0 && moving_s > 0) mix.hidden_s[time.hidden_s / moving_s] += time.hidden_s;
  mix.byte_j += time.byte_j;
}

namespace {

/// Tensor-parallel ranks talk within their node while weights and gradients travel between nodes: other
/// communicators on other streams. Collectives of one link come one after the other.
Program separated_by_link(const Program& program, const PlanPoint& point, const Cluster& cluster) {
  const auto is_network = [&](const Op& op) {
    return op.lane == program::Lane::communication && &link_of(op, point, cluster) == &cluster.between;
  };
  const auto stays = [&](const Op& op) {
    return op.lane == program::Lane::communication && op.phase != Phase::setup && !is_network(op);
  };
  if (std::ranges::none_of(program.ops, is_network) || std::ranges::none_of(program.ops, stays)) return {};
  Program separated = program;
  for (Op& op : separated.ops)
    if (is_network(op)) op.lane = kNetworkLane;
  passes::set_waits(separated, point.step.sharding.zero >= 2);
  return separated;
}

Priced price_layers(const PlanPoint& point, const Setting& setting, const OpTimes& times, Forwards& forwards,
                    int stage, int micro_batches, std::int64_t layers) {
  Priced priced{.program = program_of(point, forwards, stage, micro_batches, layers)};
  const Program& program = priced.program;
  require_split(program, point.step.sharding, stage);
  priced.times.resize(program.ops.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.phase == Phase::setup) continue;
    priced.times[i] = time_alone(program, op, point.step.sharding, setting, times);
    if (moves_between_ranks(op)) continue;
    priced.times[i] = with_link(priced.times[i], program, op, point, setting);
    add_to_mix(priced.mix, op, priced.times[i]);
  }
  priced.by_link = separated_by_link(program, point, setting.cluster);
  return priced;
}

const Program& simulated(const Priced& priced) {
  return priced.by_link.ops.empty() ? priced.program : priced.by_link;
}

std::vector<double> seconds_of(const Priced& priced, double clock) {
  std::vector<double> seconds(priced.program.ops.size());
  for (std::size_t i = 0; i < seconds.size(); ++i)
    if (priced.program.ops[i].phase != Phase::setup) seconds[i] = OpTimes::at_clock(priced.times[i], clock);
  return seconds;
}

/// Copies of mapped memory leave the multiprocessors alone.
SimulationOptions simulation_options(const Setting& setting, const PlanPoint& point) {
  // No kernels of collectives run beside the step's own, except sums of gradients that ZeRO 2 and 3 free.
  const bool is_undisturbed = point.step.rewrites.has(Rewrite::sum_in_update) && point.step.sharding.zero < 2;
  return {.launch_host_s = setting.framework.launch_host_s,
          .matmul_slowdown = is_undisturbed ? 1 : setting.cluster.matmul_slowdown,
          .other_slowdown = is_undisturbed ? 1 : setting.cluster.other_slowdown};
}

/// What tensors take, and rooflm's kernels beside them; other frameworks' kernels are part of the framework.
RankMemory memory_of(const Program& program, const PlanPoint& point, const Setting& setting) {
  const Framework& framework = setting.framework;
  const HeldTensors held{.has_unread_saves = framework.has_unread_saves &&
                                             point.step.recompute == passes::Recompute::every_other,
                         .keeps_last_layer = framework.keeps_last_layer && point.step.sharding.pipeline == 1};
  RankMemory memory = rank_memory(program, point.step.engine, framework.has_caching_allocator, held);
  if (setting.framework.has_rewrites) {
    memory.workspace_bytes +=
        kernel_workspace_bytes(program, setting.device, setting.framework.is_deterministic);
  }
  return memory;
}

RoleStep simulate_priced(const Priced& priced, const PlanPoint& point, const Setting& setting,
                         int micro_batches, double clock) {
  const Program& program = priced.program;
  RoleStep role{.mix = priced.mix, .clock_share = clock};
  const std::vector<double> seconds = seconds_of(priced, clock);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.phase == Phase::setup) continue;
    const OpTime& time = priced.times[i];
    role.launched_s += setting.framework.launch_host_s;
    const program::Cost cost = program::cost_of(program, op);
    WorkTime& work = role.work[std::string(program::name_of(op.def->work))];
    work.seconds += seconds[i];
    work.matmul_flop += static_cast<double>(cost.matmul_flop);
    work.bytes += static_cast<double>(cost.bytes_read + cost.bytes_written);
    work.sent_bytes += sent_bytes(program, op, point.step.sharding);
    ++work.ops;
    role.uncertain_s += seconds[i] * time.spread;
    role.priced_s += seconds[i];
    role.basis = weaker(role.basis, time.basis);
  }
  SimulationOptions options = simulation_options(setting, point);
  options.keeps_idle = micro_batches > 1;
  role.timeline = simulate(simulated(priced), seconds, options);
  const PhaseSeconds forward = phase_seconds(program, role.timeline, Phase::forward, micro_batches - 1);
  const PhaseSeconds backward = phase_seconds(program, role.timeline, Phase::backward, micro_batches - 1);
  role.forward_s = forward.all_s;
  role.end_forward_s = forward.end_s;
  role.backward_s = backward.all_s;
  role.end_backward_s = backward.end_s;
  role.backward_link_s = backward_link_seconds(simulated(priced), seconds, micro_batches - 1);
  role.first_exposed_s = first_exposed_seconds(program, role.timeline);
  role.timeline.idle = {};
  role.timeline.spans = {};
  role.memory = memory_of(program, point, setting);
  return role;
}

/// Whether weights are gathered ahead of a layer or gradients summed behind it.
bool buffers_take_turns(const compile::Sharding& sharding) {
  return sharding.zero >= 2 || (sharding.zero == 1 && sharding.pipeline == 1);
}

}  // namespace

RoleStep simulate_role(const PlanPoint& point, const Setting& setting, const OpTimes& times,
                       Forwards& forwards, int stage, int micro_batches, bool is_rough) {
  const std::int64_t layers = point.step.sharding.layers_per_part(point.config.layers);
  // The first and the last layer. Where weights are gathered ahead of a layer or gradients summed behind it,
  // also those beside them: most memory is in use in the midst of layers then, which two of them do not have.
  // Buffers take turns there, so an odd number of layers has its peak at another moment than an even one, and
  // grows evenly from seven on.
  const bool takes_turns = buffers_take_turns(point.step.sharding);
  const std::int64_t fewest = !takes_turns ? 2 : layers % 2 == 0 ? 4 : 7;
  // Of every other product, layers come in pairs.
  const bool are_pairs = takes_turns || point.step.recompute == passes::Recompute::every_other;
  const std::int64_t alike = are_pairs ? 2 : 1;
  const std::int64_t few = fewest + alike;
  const auto price = [&](std::int64_t count) {
    return price_layers(point, setting, times, forwards, stage, micro_batches, count);
  };
  const auto clock_of = [&](const PowerMix& mix) {
    const bool is_fixed = setting.at_table_clock || !setting.calibration.empty();
    if (is_fixed) return 1.0;
    return clock_share(times.power(), mix) *
           slowest_clock_share(setting.cluster, point.step.sharding.ranks());
  };
  // Matrices of few layers are not owned by ranks as those of many are.
  const bool has_owners = passes::is_of_matrices(point.step.optimizer.kind) && point.step.sharding.zero > 0;
  if (setting.every_layer || has_owners || point.config.has_unlike_layers() || layers <= few + 1) {
    const Priced all = price(layers);
    return simulate_priced(all, point, setting, micro_batches, clock_of(all.mix));
  }
  const Priced some = price(few);
  const Priced less = price(fewest);
  const double rest = static_cast<double>(layers - few) / static_cast<double>(alike);
  PowerMix mix = some.mix;
  mix.add(some.mix, rest);
  mix.add(less.mix, -rest);
  const double clock = clock_of(mix);
  RoleStep role = simulate_priced(some, point, setting, micro_batches, clock);
  RoleStep more = role;
  more.add(simulate_priced(less, point, setting, micro_batches, clock), -1);
  // A layer more takes its passes more, but while another wait gets shorter: for gradients of the head,
  // beside few layers. That wait may be within a pass, or after it. And collectives that take longer than
  // what they run beside fall behind with each layer, which few do not show while something else is waited
  // for. And a host that takes longer for a layer than the device is ahead of it for a few only. None of
  // these goes on for many layers.
  const Timeline& t = more.timeline;
  const double passes_s = micro_batches * (more.forward_s + more.backward_s);
  const double behind_s = t.step_s - passes_s;
  const double idle_s = t.step_s - t.busy_s - t.slowed_s;
  constexpr double kSame = 0.01;
  constexpr double kShorter = 0.001;  // of a layer, and there are up to a hundred
  role.is_least = behind_s < -kSame * passes_s || idle_s < -kShorter * t.busy_s ||
                  more.backward_link_s > (1 + kSame) * (more.backward_s + std::max(0.0, behind_s)) ||
                  more.launched_s > (1 + kShorter) * t.step_s;
  if (role.is_least && !is_rough) {
    const Priced all = price(layers);
    return simulate_priced(all, point, setting, micro_batches, clock);
  }
  const double gaps = role.memory.gap_bytes;  // what is lost between tensors does not grow with their number
  role.add(more, rest);
  role.memory.gap_bytes = gaps;
  return role;
}

bool is_memory_of_few_layers_enough(const PlanPoint& point, const Setting& setting,
                                    const RankMemory& foreseen) {
  const bool updates_early = point.step.engine == compile::EngineKind::fused &&
                             !point.step.rewrites.has(Rewrite::separate_matmuls) &&
                             point.step.sharding.ranks() == 1 && point.step.optimizer.clip_norm == 0;
  const bool is_moved = buffers_take_turns(point.step.sharding) ||
                        std::min({foreseen.weight_bytes, foreseen.gradient_bytes, foreseen.activation_bytes,
                                  foreseen.workspace_bytes}) < 0;
  return !setting.framework.has_caching_allocator && !updates_early && !is_moved;
}

RankMemory memory_of_all_layers(const PlanPoint& point, const Setting& setting, Forwards& forwards, int stage,
                                int micro_batches) {
  const std::int64_t layers = point.step.sharding.layers_per_part(point.config.layers);
  return memory_of(program_of(point, forwards, stage, micro_batches, layers), point, setting);
}

TimedRole time_role(const PlanPoint& point, const Setting& setting, const OpTimes& times, Forwards& forwards,
                    int stage, int micro_batches, std::size_t most_ops) {
  const RoleStep whole = simulate_role(point, setting, times, forwards, stage, micro_batches);
  const std::int64_t all = point.step.sharding.layers_per_part(point.config.layers);
  TimedRole role{.layers = all, .micro_batches = micro_batches};
  Priced priced = price_layers(point, setting, times, forwards, stage, micro_batches, all);
  // Layers come in pairs where every other product is redone.
  constexpr std::int64_t kFewest = 4;
  if (priced.program.ops.size() > most_ops && all > kFewest) {
    const auto fitting = static_cast<std::int64_t>(static_cast<double>(all) * static_cast<double>(most_ops) /
                                                   static_cast<double>(priced.program.ops.size()));
    role.layers = std::max(kFewest, fitting / 2 * 2);
    priced = price_layers(point, setting, times, forwards, stage, micro_batches, role.layers);
  }
  SimulationOptions options = simulation_options(setting, point);
  options.keeps_idle = true;
  role.timeline = simulate(simulated(priced), seconds_of(priced, whole.clock_share), options);
  role.program = std::move(priced.program);
  return role;
}

}  // namespace rooflm::perfmodel
