// What a run on many devices would take: memory of a rank, time of a step and what it is made of.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "compile/recipe.h"
#include "devices/device.h"
#include "model/config.h"
#include "perfmodel/cluster.h"
#include "perfmodel/framework.h"
#include "perfmodel/op_times.h"
#include "perfmodel/pipeline.h"
#include "perfmodel/rank_memory.h"
#include "perfmodel/what_if.h"

namespace rooflm::perfmodel {

/// One way to run a model on a number of devices.
struct PlanPoint {
  model::ModelConfig config{};
  compile::StepOptions step{};   ///< fitted to the device; `sharding` says how it is split
  std::int64_t micro_batch = 0;  ///< sequences of one rank's forward pass
  std::int64_t seq = 0;
  std::int64_t micro_batches = 1;  ///< of a rank in one step

  [[nodiscard]] std::int64_t global_batch() const { return micro_batch * micro_batches * step.sharding.data; }
  [[nodiscard]] std::int64_t tokens() const { return global_batch() * seq; }
  [[nodiscard]] int gpus() const { return step.sharding.ranks(); }
};

/// Where and by what it runs.
struct Setting {
  devices::Device device{};
  Framework framework{};
  Cluster cluster{};
  double memory_limit_bytes = 0;  ///< of one device
  WhatIf what_if{};               ///< that was applied
  /// By kind of work (program::name_of), measured times of ops by those of the tables, as a record has them:
  /// at its clock.
  std::map<std::string, double> calibration{};
  bool at_table_clock = false;  ///< whatever the power limit, for bounds
  bool every_layer = false;     ///< build all layers, although they are alike: slower, for tests
};

/// Time of ops of one kind of work in one step of the slowest rank.
struct WorkTime {
  double seconds = 0;
  double matmul_flop = 0;
  double bytes = 0;
  double sent_bytes = 0;  ///< by collectives, to other ranks
  std::int64_t ops = 0;
};

/// The times of ops there.
OpTimes op_times_of(const Setting& setting);

/// Makes the links, the host and the memory of the setting what they would be; arithmetic and bandwidth
/// follow when ops are priced. All times are assumed then.
void apply(const WhatIf& what_if, Setting& setting);

/// One kind of rank of a plan.
struct PlannedRole {
  int stage = 0;  ///< of the pipeline: the first of those that are alike
  RankMemory memory{};
  StageTimes times{};
};

struct Plan {
  bool is_whole = true;  ///< false where make_plan gave up: then only `fits`, and memory that is too much
  bool fits = true;
  RankMemory memory{};  ///< of the rank that needs most
  int memory_stage = 0;
  double memory_limit_bytes = 0;
  double step_s = 0;
  double low_s = 0, high_s = 0;  ///< interval
  bool is_least = false;         ///< GiveUp::is_rough: the step takes longer
  Basis basis = Basis::assumed;
  /// Of the slowest stage; they add up to step_s.
  double compute_s = 0, slowed_s = 0, exposed_s = 0, host_s = 0, waiting_s = 0, bubble_s = 0;
  double communication_s = 0;  ///< exposed or not
  std::map<std::string, WorkTime> work{};
  int slowest_stage = 0;
  std::vector<PlannedRole> roles{};  ///< the first stage, those between, the last
  double model_flop = 0;             ///< of a step, all devices (model::model_flop_per_token)
  /// Of products of a step, all devices, with those that are done again or by several ranks.
  double executed_flop = 0;
  double clock_hz = 0;  ///< that power leaves to the slowest stage; 0: not known of this chip
};

/// Builds the program of one rank of each role, prices its ops, lets its lanes run, and puts the stages of a
/// pipeline in order. Micro-batches beyond those that are built cost what the last of these does. When the
/// memory of a rank does not fit, times are predicted all the same and `fits` is false. Throws
/// core::UsageError for what cannot be split so, core::Unavailable for what no program is made of yet.
Plan make_plan(const PlanPoint& point, const Setting& setting);

/// What a search needs no plan of. Roles are looked at one after the other, and each is as expensive as the
/// others.
struct GiveUp {
  bool when_too_large = false;  ///< after the first role whose memory does not fit
  /// Memory that surely fits may be foreseen from few layers, and a tenth off; time may be the least.
  bool is_rough = false;
  double slower_than_s = std::numeric_limits<double>::infinity();  ///< of a step
};

class Forwards;  // perfmodel/role.h
/// The same for one of many plans of a model, which share `forwards`.
Plan make_plan(const PlanPoint& point, const Setting& setting, Forwards& forwards, const GiveUp& give_up);

}  // namespace rooflm::perfmodel
