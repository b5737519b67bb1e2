// One rank of a kind of role: its program, priced and run in time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "perfmodel/op_times.h"
#include "perfmodel/pipeline.h"
#include "perfmodel/plan.h"
#include "perfmodel/simulate.h"
#include "program/program.h"

namespace rooflm::perfmodel {

/// A rank's step with a number of micro-batches, and what it keeps in memory. The spans of `timeline` are
/// dropped.
struct RoleStep {
  Timeline timeline{};
  double forward_s = 0, backward_s = 0;  ///< of the last micro-batch
  /// Of those: embedding, or last norm, head and loss.
  double end_forward_s = 0, end_backward_s = 0;
  double backward_link_s = 0;  ///< of the last micro-batch: collectives of the lane that has most
  double first_exposed_s = 0;  ///< of the first micro-batch, where there are several: Timeline::exposed_s
  double launched_s = 0;       ///< that the host takes to submit all ops
  RankMemory memory{};
  std::map<std::string, WorkTime> work{};
  double uncertain_s = 0;  ///< sum over ops of seconds times spread
  double priced_s = 0;     ///< sum over ops of seconds
  PowerMix mix{};          ///< of the last micro-batch's forward and backward pass and those before
  double clock_share = 1;  ///< of the clock of the tables
  Basis basis = Basis::measured;
  bool is_least = false;  ///< time is from few layers that do not tell, and more of them take longer

  /// Each number `times` as large; RoleStep{} is nothing.
  void add(const RoleStep& other, double times);
};

/// Forward passes of one model, by what they depend on: plans that differ in the rest share them. Not for
/// several threads.
class Forwards {
 public:
  /// Of the model with as many layers.
  const compile::RankForward& of(const PlanPoint& point, const model::ModelConfig& config,
                                 const compile::StepOptions& options);

 private:
  struct Key {
    std::int64_t layers, batch, seq;
    int tensor, pipeline, interleave, stage;
    bool is_sequence_parallel, is_vocab_parallel, has_short_ends, is_split;
    std::string lora;
    [[nodiscard]] auto parts() const {
      return std::tie(layers, batch, seq, tensor, pipeline, interleave, stage, is_sequence_parallel,
                      is_vocab_parallel, has_short_ends, is_split, lora);
    }
    bool operator<(const Key& other) const { return parts() < other.parts(); }
  };
  std::map<Key, compile::RankForward> known_{};
};

/// What is built for it: stages between the first and the last are alike, so a pipeline of three of them,
/// with as many layers each, has all programs that a longer one has.
compile::Sharding built_sharding(compile::Sharding sharding);
/// The stage of it that stands for `stage`.
int built_stage_of(const compile::Sharding& sharding, int stage);

/// The program of the rank (0, 0, `stage`) with `micro_batches`. Layers are alike: of a stage with many,
/// programs with two and three of them (four, where layers come in pairs; four to nine with ZeRO 3) are
/// built, and each further one costs what the third does. Where a wait at the end gets shorter with each
/// layer that is not so: all are built then, or where `is_rough` the time is the least (RoleStep::is_least).
/// All are built where ranks own matrices (passes/division.h). Throws core::Unavailable when no program is
/// made yet of what the point asks for.
RoleStep simulate_role(const PlanPoint& point, const Setting& setting, const OpTimes& times,
                       Forwards& forwards, int stage, int micro_batches, bool is_rough = false);

/// Whether `foreseen`, from few layers, is the memory of all. Not where PyTorch's allocator is replayed,
/// whose pools few layers do not fill as more do; nor where gradients of early updates wait in windows of a
/// share of all parameters (compile/passes/early_updates.h); nor where whole gradients or weights of the
/// layers take turns, so that the peak's moment moves (ZeRO), which also a role below 0 shows.
bool is_memory_of_few_layers_enough(const PlanPoint& point, const Setting& setting,
                                    const RankMemory& foreseen);
/// Memory of that rank, from a program with all its layers.
RankMemory memory_of_all_layers(const PlanPoint& point, const Setting& setting, Forwards& forwards, int stage,
                                int micro_batches);

/// Of one op, alone, as the setting's record calibrates it. What was sent has been on its way since the other
/// stage was done with it: of what moves between stages only a receive takes time.
OpTime time_alone(const program::Program& program, const program::Op& op, const compile::Sharding& sharding,
                  const Setting& setting, const OpTimes& times);
/// Updates and collectives are left out: a power limit holds for parts of a step already.
void add_to_mix(PowerMix& mix, const program::Op& op, const OpTime& time);

/// A program of a role with when each of its ops runs: for pictures.
struct TimedRole {
  program::Program program{};
  Timeline timeline{};      ///< with spans and idle stretches
  std::int64_t layers = 0;  ///< that were built, of each part of the model
  int micro_batches = 1;
};

/// The program of the rank (0, 0, `stage`) with `micro_batches` and as many layers as make no more than about
/// `most_ops` ops, at the clock that power leaves to the whole stage. Throws as simulate_role.
TimedRole time_role(const PlanPoint& point, const Setting& setting, const OpTimes& times, Forwards& forwards,
                    int stage, int micro_batches, std::size_t most_ops);

/// Whether the op is timed as one that moves data between ranks; then how many bytes, over which kind of
/// link.
bool moves_between_ranks(const program::Op& op);
std::int64_t moved_bytes(const program::Program& program, const program::Op& op);
/// What a rank sends of them; 0 of other ops.
double sent_bytes(const program::Program& program, const program::Op& op, const compile::Sharding& sharding);
/// The time of such an op, with nothing beside it.
OpTime collective_time(const program::Program& program, const program::Op& op,
                       const compile::Sharding& sharding, const Setting& setting);
const LinkLevel& link_of(const program::Op& op, const PlanPoint& point, const Cluster& cluster);

}  // namespace rooflm::perfmodel
