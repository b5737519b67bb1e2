// What a run on many devices would take: memory of a rank, time of a step and what it is made of.
#include "perfmodel/plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/flop_conventions.h"
#include "perfmodel/role.h"

namespace rooflm::perfmodel {
namespace {

/// A role with all its micro-batches.
struct StageRole {
  RoleStep step{};
  StageTimes times{};
  bool is_too_large = false;  ///< known from its first micro-batch; there are no times
};

/// What its micro-batches in flight keep beyond those of the program that is built; `saved`: by one of them.
/// The head of the last stage keeps what it does of fewer than the layers.
double more_saved_bytes(const PlanPoint& point, int stage, int built_micro_batches, const RankMemory& saved) {
  const compile::Sharding& sharding = point.step.sharding;
  if (sharding.pipeline == 1) return 0;
  const double more =
      in_flight(stage, sharding, point.micro_batches) -
      in_flight(built_stage_of(sharding, stage), built_sharding(sharding), built_micro_batches);
  const auto more_heads = static_cast<double>(heads_in_flight(sharding, point.micro_batches) -
                                              heads_in_flight(sharding, built_micro_batches));
  return more * (saved.saved_bytes - saved.saved_by_head_bytes) + more_heads * saved.saved_by_head_bytes;
}

/// `times`, with what the part at an end of the model has and others of its stage have not.
StageTimes with_end(StageTimes times, const RoleStep& step, const PlanPoint& point, int stage) {
  const compile::Sharding& sharding = point.step.sharding;
  const bool is_end = stage == 0 || stage == sharding.pipeline - 1;
  if (sharding.interleave == 1 || !is_end) return times;
  const std::int64_t missing = sharding.short_ends ? 1 : 0;
  const auto layers =
      static_cast<double>(sharding.layers_per_part(point.config.layers) * sharding.interleave - missing);
  const auto extra = [&](double all_s, double end_s) {
    return end_s - static_cast<double>(missing) * (all_s - end_s) / layers;
  };
  times.end_forward_s = extra(times.forward_s, step.end_forward_s);
  times.end_backward_s = extra(times.backward_s, step.end_backward_s);
  return times;
}

int groups_of(const compile::Sharding& sharding) {
  return static_cast<int>(sharding.data_ranks() > 1) + static_cast<int>(sharding.context > 1) +
         static_cast<int>(sharding.tensor > 1) + static_cast<int>(sharding.pipeline > 1);
}

/// What stages of torch.distributed.pipelining hold beside the tensors of their programs: buffers of all
/// micro-batches for what they receive in both directions, and all outputs until the end of the step
/// (PipelineStage::_create_act_recv_info, _create_grad_recv_info, output_chunks; December 2024). What is in
/// flight is in the program.
double stage_buffer_bytes(const PlanPoint& point, const Framework& framework, int stage) {
  const compile::Sharding& sharding = point.step.sharding;
  if (sharding.pipeline == 1 || !framework.has_torch_stages) return 0;
  const auto m = static_cast<double>(point.micro_batches);
  const double elements = static_cast<double>(point.micro_batch * point.seq) / sharding.context;
  const double width = static_cast<double>(core::size_of(point.step.dtype));
  const double passed = elements * static_cast<double>(point.config.d_model) * width /
                        (sharding.sequence_parallel ? sharding.tensor : 1);
  const double logits = elements * static_cast<double>(point.config.vocab) * width /
                        (sharding.vocab_parallel ? sharding.tensor : 1);
  const double waiting = m - in_flight(stage, sharding, point.micro_batches);
  double bytes = 0;
  for (int part = stage; part < sharding.parts(); part += sharding.pipeline) {
    const bool is_last = part == sharding.parts() - 1;
    if (part > 0) bytes += waiting * passed;
    bytes += is_last ? (m - 1) * logits : (m - 1) * passed + m * passed;
  }
  return bytes;
}

RankMemory with_overheads(RankMemory memory, const PlanPoint& point, const Setting& setting) {
  memory.gap_bytes += setting.framework.fragmentation * memory.total();
  memory.buffer_bytes += groups_of(point.step.sharding) * setting.cluster.buffer_bytes;
  memory.context_bytes = setting.framework.context_bytes;
  return memory;
}

/// What a role needs at least: its optimizer's state, and what the micro-batches in flight keep for their
/// backward passes. All of that is alive at once, in every program of it.
double least_bytes(const RankMemory& memory, const PlanPoint& point, const Setting& setting, int stage) {
  constexpr double kSafely = 0.97;  // layers are drawn out
  const compile::Sharding& sharding = point.step.sharding;
  const bool is_pipeline = sharding.pipeline > 1;
  const double micro_batches = is_pipeline ? in_flight(stage, sharding, point.micro_batches) : 1;
  const auto heads = is_pipeline ? static_cast<double>(heads_in_flight(sharding, point.micro_batches)) : 1.0;
  const RankMemory least{
      .optimizer_bytes = memory.optimizer_bytes,
      .activation_bytes = micro_batches * (memory.saved_bytes - memory.saved_by_head_bytes) +
                          heads * memory.saved_by_head_bytes};
  return kSafely * with_overheads(least, point, setting).total();
}

/// Whether gradients of one micro-batch are others than sums over several: in 16 bits, and reduced in them.
bool has_narrow_gradients(const PlanPoint& point) {
  return point.step.rewrites.has(compile::Rewrite::compact_state) &&
         point.step.engine == compile::EngineKind::fused && core::size_of(point.step.dtype) == 2;
}

/// How many micro-batches the two programs have from which all are foreseen: one and two, two and three where
/// gradients of one are narrow, or, where parts of the model are interleaved, as many as their order asks
/// for.
std::pair<int, int> built_micro_batches(const PlanPoint& point) {
  const compile::Sharding& sharding = point.step.sharding;
  if (sharding.interleave > 1) {
    const int few = built_sharding(sharding).pipeline;
    return {few, 2 * few};
  }
  return has_narrow_gradients(point) && point.micro_batches > 1 ? std::pair{2, 3} : std::pair{1, 2};
}

/// What a stage alone takes: no step is shorter, but for how the sums are rounded.
double least_step_s(const StageTimes& times, std::int64_t micro_batches) {
  constexpr double kRounding = 1e-6;
  return (1 - kRounding) *
         (static_cast<double>(micro_batches) * (times.forward_s + times.backward_s) + times.tail_s);
}

/// `foreseen` from few layers, unless those do not tell: then of all of them, but not where a search gives up
/// anyway.
RankMemory memory_of_stage(const RankMemory& foreseen, const StageTimes& times, const PlanPoint& point,
                           const Setting& setting, Forwards& forwards, int stage, int micro_batches,
                           const GiveUp& give_up) {
  constexpr double kFarTooLarge = 1.15;  // what few layers foresee is up to 10 % off
  constexpr double kSurelyFits = 0.8;
  const bool is_hopeless =
      give_up.when_too_large && foreseen.total() > kFarTooLarge * setting.memory_limit_bytes;
  const bool is_sure = foreseen.total() < kSurelyFits * setting.memory_limit_bytes;
  const bool is_slow = least_step_s(times, point.micro_batches) > give_up.slower_than_s;
  const bool is_rough_enough =
      give_up.is_rough && !setting.framework.has_caching_allocator && (is_sure || is_slow);
  if (is_hopeless || is_rough_enough || is_memory_of_few_layers_enough(point, setting, foreseen))
    return foreseen;
  return memory_of_all_layers(point, setting, forwards, stage, micro_batches);
}

/// What one more micro-batch adds is at least its computing: then it waits for nothing. And at least what the
/// host takes for it.
void keep_busy(RoleStep& later) {
  Timeline& t = later.timeline;
  if (later.launched_s > std::max(t.step_s, t.busy_s)) {
    t.host_s += later.launched_s - t.step_s;
    t.step_s = later.launched_s;
  }
  if (t.step_s >= t.busy_s) return;
  t.step_s = t.busy_s;
  for (const auto part : {&Timeline::slowed_s, &Timeline::exposed_s, &Timeline::host_s, &Timeline::waiting_s})
    t.*part = 0;
}

/// Steps of a few micro-batches and of more, all of a role. Their difference is what later ones take.
struct BuiltSteps {
  int few = 1, more = 2;
  RoleStep first{}, last{};

  [[nodiscard]] int added() const { return more - few; }
  [[nodiscard]] RoleStep later() const {
    RoleStep difference = last;
    difference.add(first, -1);
    keep_busy(difference);
    return difference;
  }
  /// Whether less communication is exposed in a later micro-batch than in the first: what one adds to a step
  /// of one hides a part of the sums of gradients, which are there once in a step. No further one does.
  [[nodiscard]] bool hides_sums() const {
    constexpr double kSame = 0.002;
    const double exposed_s = last.timeline.exposed_s - first.timeline.exposed_s;
    const double each_s = last.timeline.step_s - first.timeline.step_s;
    return few == 1 && added() == 1 && exposed_s < last.first_exposed_s - kSame * each_s;
  }
};

/// Programs of few micro-batches and of more are built, and each further one costs what the later ones do.
StageRole role_of(const PlanPoint& point, const Setting& setting, const OpTimes& times, Forwards& forwards,
                  int stage, const GiveUp& give_up) {
  const std::int64_t m = point.micro_batches;
  const bool is_pipeline = point.step.sharding.pipeline > 1;
  const auto build = [&](int micro_batches) {
    return simulate_role(point, setting, times, forwards, stage, micro_batches, give_up.is_rough);
  };
  const auto [few, more] = built_micro_batches(point);
  const RoleStep fewest = build(few);
  if (m == few && !is_pipeline) {
    StageRole role{.step = fewest};
    const double work_s = few * (fewest.forward_s + fewest.backward_s);
    role.times = {.forward_s = fewest.forward_s,
                  .backward_s = fewest.backward_s,
                  .tail_s = std::max(0.0, fewest.timeline.step_s - work_s)};
    role.step.memory =
        memory_of_stage(fewest.memory, role.times, point, setting, forwards, stage, few, give_up);
    return role;
  }
  if (give_up.when_too_large &&
      least_bytes(fewest.memory, point, setting, stage) > setting.memory_limit_bytes)
    return {.step = fewest, .times = {}, .is_too_large = true};
  BuiltSteps built{.few = few, .more = more, .first = fewest, .last = build(more)};
  // The stages of a bubble wait for passes of later micro-batches, which a step of two does not have.
  const bool reads_later = m > more || is_pipeline;
  const bool is_narrow = few == 1 && has_narrow_gradients(point);
  const bool is_special = reads_later && (is_narrow || built.hides_sums());
  if (is_special && !give_up.is_rough) {
    built.first = std::move(built.last);
    built.few = more;
    built.more = more + 1;
    built.last = build(built.more);
  }
  const RoleStep later = built.later();
  const int added = built.added();
  // Parts that are interleaved build 3 and 6 micro-batches, between which a step may have 4 or 5.
  const int from = m >= built.more ? built.more : built.few;
  StageRole role{.step = m < built.few ? fewest : m < built.more ? built.first : built.last};
  if (m > from) role.step.add(later, static_cast<double>(m - from) / added);
  role.step.is_least = fewest.is_least || built.last.is_least || (is_special && give_up.is_rough);
  // Of a later micro-batch: the first waits for what is gathered once in a step, and the last for sums.
  const double each_s = later.timeline.step_s / added;
  const double forward_s = std::min(built.last.forward_s, each_s);
  const double backward_s = each_s - forward_s;
  const int done = m < built.few ? few : built.few;
  const double done_s = (m < built.few ? fewest : built.first).timeline.step_s;
  const double tail_s = std::max(0.0, done_s - done * each_s);
  role.times = with_end({.forward_s = forward_s, .backward_s = backward_s, .tail_s = tail_s}, built.last,
                        point, stage);
  // Memory grows with the micro-batches in flight, not with those there are: two have all kinds of tensors,
  // three also what a split state holds between two later ones.
  const bool is_split = point.step.sharding.zero > 0 && built.more <= 3 && m >= 3;
  const int of_two = built.few > 1 && added == 1 ? built.few : built.more;
  const int counted = m <= built.few ? done : is_split ? 3 : of_two;
  const RankMemory& foreseen = (m < built.few          ? fewest
                                : counted == built.few ? built.first
                                                       : built.last)
                                   .memory;
  role.step.memory = memory_of_stage(foreseen, role.times, point, setting, forwards, stage, counted, give_up);
  role.step.memory.activation_bytes += more_saved_bytes(point, stage, counted, fewest.memory);
  return role;
}

void take_times(Plan& plan, const StageRole& slowest, const PipelineTimes& pipeline, bool is_pipeline) {
  const Timeline& timeline = slowest.step.timeline;
  plan.step_s = pipeline.step_s;
  plan.communication_s = std::max(0.0, timeline.communication_s);
  // Parts of the timeline are differences of simulations, times layers and micro-batches: small ones may come
  // out below 0 or above what there is. What is left is the bubble, and without a pipeline a wait.
  constexpr double kRounding = 1e-9;
  double left_s = plan.step_s;
  const auto take = [&](double part_s, double most_s) {
    const double taken_s = std::clamp(part_s, 0.0, std::max(0.0, std::min(left_s, most_s)));
    left_s -= taken_s;
    if (std::abs(left_s) < kRounding * plan.step_s) left_s = 0;
    return taken_s;
  };
  plan.compute_s = take(timeline.busy_s, plan.step_s);
  plan.slowed_s = take(timeline.slowed_s, plan.step_s);
  plan.exposed_s = take(timeline.exposed_s, plan.communication_s);
  plan.host_s = take(timeline.host_s, plan.step_s);
  plan.waiting_s = take(is_pipeline ? timeline.waiting_s : left_s, plan.step_s);
  plan.bubble_s = left_s;
  plan.work = slowest.step.work;
  plan.basis = slowest.step.basis;
  const double spread = slowest.step.priced_s > 0 ? slowest.step.uncertain_s / slowest.step.priced_s : 0;
  plan.low_s = plan.step_s * (1 - spread);
  plan.high_s = plan.step_s * (1 + spread);
}

/// The first stage, those between, the last.
std::vector<int> kinds_of_stages(int stages) {
  std::vector<int> kinds = {0};
  if (stages > 2) kinds.push_back(1);
  if (stages > 1) kinds.push_back(stages - 1);
  return kinds;
}

}  // namespace

OpTimes op_times_of(const Setting& setting) {
  const FrameworkKernels kernels{.is_deterministic = setting.framework.is_deterministic,
                                 .attention = setting.framework.attention_kernels,
                                 .moved = setting.framework.moved,
                                 .matmul_spread = setting.framework.matmul_spread,
                                 .grouped_share = setting.framework.grouped_share};
  return {setting.device, kernels, setting.what_if};
}

void apply(const WhatIf& what_if, Setting& setting) {
  setting.what_if = what_if;
  setting.cluster.inside.byte_per_s *= what_if.link;
  if (setting.cluster.pair) setting.cluster.pair->byte_per_s *= what_if.link;
  setting.cluster.between.byte_per_s *= what_if.network;
  setting.memory_limit_bytes *= what_if.memory;
  setting.framework.launch_host_s /= what_if.host;
}

Plan make_plan(const PlanPoint& point, const Setting& setting) {
  Forwards forwards;
  return make_plan(point, setting, forwards, {});
}

Plan make_plan(const PlanPoint& point, const Setting& setting, Forwards& forwards, const GiveUp& give_up) {
  const compile::Sharding& sharding = point.step.sharding;
  compile::check(sharding, point.config, point.micro_batch, point.seq, static_cast<int>(point.micro_batches),
                 compile::Purpose::plan);
  require_links(setting.cluster, setting.device, sharding.ranks());
  if (point.step.rewrites.has(compile::Rewrite::sum_in_update))
    require_peers(setting.cluster, sharding.ranks(), sharding.data_ranks());
  const OpTimes times = op_times_of(setting);
  const int stages = sharding.pipeline;
  Plan plan{.memory_limit_bytes = setting.memory_limit_bytes};
  std::vector<StageRole> roles;
  for (const int stage : kinds_of_stages(stages)) {
    roles.push_back(role_of(point, setting, times, forwards, stage, give_up));
    RankMemory memory = with_overheads(roles.back().step.memory, point, setting);
    memory.activation_bytes += stage_buffer_bytes(point, setting.framework, stage);
    plan.roles.push_back({.stage = stage, .memory = memory, .times = roles.back().times});
    plan.is_least = plan.is_least || roles.back().step.is_least;
    if (roles.size() == 1 || memory.total() > plan.memory.total()) {
      plan.memory = memory;
      plan.memory_stage = stage;
    }
    plan.fits = plan.memory.total() <= plan.memory_limit_bytes && !roles.back().is_too_large;
    const bool is_too_slow =
        stages > 1 && least_step_s(roles.back().times, point.micro_batches) > give_up.slower_than_s;
    if ((!plan.fits && give_up.when_too_large) || (plan.fits && is_too_slow)) {
      plan.is_whole = false;
      return plan;
    }
  }
  std::vector<StageTimes> stage_times;
  const auto role_index = [&](int stage) {
    return stage == 0 ? std::size_t{0} : stage == stages - 1 ? roles.size() - 1 : std::size_t{1};
  };
  for (int stage = 0; stage < stages; ++stage) {
    const StageRole& role = roles[role_index(stage)];
    stage_times.push_back(role.times);
    for (const auto& [name, work] : role.step.work)
      plan.executed_flop += work.matmul_flop * sharding.tensor * sharding.data_ranks();
  }
  PipelineTimes pipeline;
  if (stages > 1) {
    pipeline = pipeline_times(stage_times, point.micro_batches, sharding.schedule, sharding.interleave);
  } else {
    pipeline = {.step_s = roles.front().step.timeline.step_s};
  }
  plan.slowest_stage = pipeline.last_stage;
  const StageRole& slowest = roles[role_index(pipeline.last_stage)];
  take_times(plan, slowest, pipeline, stages > 1);
  if (times.power().is_known()) plan.clock_hz = slowest.step.clock_share * times.power().table_hz;
  plan.model_flop = static_cast<double>(model::model_flop_per_token(point.config, point.seq,
                                                                    model::trained_beside(point.step.lora))) *
                    static_cast<double>(point.tokens());
  return plan;
}

}  // namespace rooflm::perfmodel
