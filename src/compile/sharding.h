// How a step is split over devices, and what one rank of it runs.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/named.h"
#include "core/options.h"
#include "model/config.h"
#include "program/groups.h"
#include "program/pieces.h"

namespace rooflm::compile {

using core::name_of;

/// The order in which a pipeline stage processes micro-batches. gpipe: all forward passes, then all backward
/// passes (Huang et al., 2019). 1f1b: each backward pass as early as possible, so a stage keeps the
/// activations of at most as many micro-batches as there are stages (Narayanan et al., 2019).
enum class PipelineSchedule : std::uint8_t { gpipe, one_f_one_b };
constexpr auto names_of(PipelineSchedule) {
  return core::named<PipelineSchedule>(
      "schedule", {{PipelineSchedule::one_f_one_b, "1f1b"}, {PipelineSchedule::gpipe, "gpipe"}});
}

/// The degrees of each kind of parallelism; there are data * context * tensor * pipeline ranks. The forward
/// pass is written for one rank's micro-batch; a step processes data * micro_batches of them.
struct Sharding {
  int data = 1;  ///< copies of the model, each with its own part of the batch
  /// Ranks that share each sequence, T / context tokens each; keys and values of the others arrive around a
  /// ring (ring attention, Liu et al., 2023). For gradients and ZeRO they act as data-parallel ranks.
  int context = 1;
  /// Neighbours among the data-parallel ranks that have some of each layer's experts each; rows travel to
  /// them and back (Lepikhin et al., 2020). ZeRO splits everything else.
  int expert = 1;
  // Of plans alone, but the first, which is `tensor` where ranks have the same rows (recipe.cpp).
  int expert_tensor = 1;        ///< tensor-parallel ranks that share each expert; the others have whole ones
  double expert_imbalance = 1;  ///< rows of the rank that gets most of them, by their mean
  /// Experts have room for the rows that come, and not for those of all ranks; and what ZeRO splits of them
  /// is split over the ranks that have the same ones.
  bool has_exact_rows = false;
  /// ZeRO stage (Rajbhandari et al., 2020): what data-parallel ranks split. 1: masters and optimizer state;
  /// 2: also gradients; 3: also weights, which are gathered for each use (FSDP). Tensors of one dimension
  /// (norms, biases) are not split.
  int zero = 0;
  /// Embedding, last norm and head are one unit; zero 3 gathers it at the beginning of a step and reduces it
  /// at the end (PyTorch's FSDP2, whose root module does not reshard).
  bool root_unit = false;
  /// Gradients are summed over data-parallel ranks after the backward pass, not overlapped with it.
  bool late_sums = false;
  /// Ranks that share each layer's matmuls: rows of qkv and fc1, columns of proj and fc2 (Shoeybi et al.,
  /// 2019).
  int tensor = 1;
  /// Norms and residuals of tensor-parallel ranks work on a part of the rows each (Korthikanti et al., 2022).
  bool sequence_parallel = false;
  /// Embedding, head and loss of tensor-parallel ranks work on a part of the vocabulary each, if --tp divides
  /// it (Shoeybi et al., 2019). Backends have no kernels for it yet: it can be planned, and tests compare it
  /// with one rank.
  bool vocab_parallel = false;
  /// The vocabulary of plans is padded to a multiple of this.
  std::int64_t vocab_multiple = 1;
  int pipeline = 1;  ///< stages of consecutive layers
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int interleave = 1;  ///< model parts per stage (Narayanan et al., 2021)
  /// The first and the last part have one layer less than the others, to balance embedding and head (Llama 3,
  /// arXiv 2407.21783, section 3.3.2).
  bool short_ends = false;

  /// The number of ranks over which gradients are summed and state is split.
  [[nodiscard]] int data_ranks() const { return data * context; }
  [[nodiscard]] int parts() const { return pipeline * interleave; }  ///< model parts in total
  /// Layers of each part; with `short_ends` the first and the last part have one less.
  [[nodiscard]] std::int64_t layers_per_part(std::int64_t layers) const {
    return (layers + (short_ends ? 2 : 0)) / parts();
  }
  [[nodiscard]] program::Mesh mesh() const {
    return {.tensor = tensor,
            .data = data_ranks(),
            .pipeline = pipeline,
            .context = context,
            .interleave = interleave,
            .expert = expert};
  }
  [[nodiscard]] int ranks() const { return mesh().size(); }
  /// The ranks that have the same experts.
  [[nodiscard]] int expert_copies() const { return tensor * data_ranks() / (expert * expert_tensor); }
  /// Index of the model copy that a rank belongs to.
  [[nodiscard]] int copy_of(const program::Coordinates& rank) const { return rank.data / context; }
  /// The tokens of each sequence that a rank has.
  [[nodiscard]] program::Pieces pieces_of(const program::Coordinates& rank) const {
    return {.parts = context, .index = rank.data % context};
  }
  bool operator==(const Sharding&) const = default;
};

template <core::MaybeConst<Sharding> T, class Visit>
void visit_options(T& sharding, const Visit& visit) {
  visit("dp", sharding.data);
  visit("zero", sharding.zero);
  visit("cp", sharding.context);
  visit("ep", sharding.expert);
  visit("tp", sharding.tensor);
  visit("sequence_parallel", sharding.sequence_parallel);
  visit("pp", sharding.pipeline);
  visit("pp_schedule", sharding.schedule);
  visit("interleave", sharding.interleave);
}

/// What is checked is to run, or to be planned: plans have --short-ends, which is then a remedy to name, and
/// splits of experts that no backend has.
enum class Purpose : std::uint8_t { run, plan };

/// Throws core::UsageError, with the values and a remedy, for degrees below 1 or that do not divide what they
/// split, more stages than layers, and contradicting options. `batch` and `seq` are those of one micro-batch,
/// with whole sequences.
void check(const Sharding& sharding, const model::ModelConfig& config, std::int64_t batch, std::int64_t seq,
           int micro_batches, Purpose purpose = Purpose::run);

}  // namespace rooflm::compile
