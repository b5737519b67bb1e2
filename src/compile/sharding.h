// How a step is split over devices, and what one rank of it runs.
#pragma once

#include <cstdint>
#include <string_view>

#include "model/config.h"
#include "program/groups.h"
#include "program/pieces.h"

namespace rooflm::compile {

/// In which order a pipeline's stage works on micro-batches. gpipe: all forward, then all backward (Huang et
/// al., 2019). 1f1b: backward as soon as it can be, so that a stage keeps the activations of at most as many
/// micro-batches as there are stages (Narayanan et al., 2019).
enum class PipelineSchedule : std::uint8_t { gpipe, one_f_one_b };
std::string_view name_of(PipelineSchedule schedule);
/// "gpipe" or "1f1b"; throws core::UsageError with a suggestion.
PipelineSchedule parse_schedule(std::string_view name);

/// The ways in which a step is split, which multiply: data * context * tensor * pipeline ranks. A rank's
/// micro-batch is what the forward pass was written for; a step sees data * micro_batches of them.
struct Sharding {
  int data = 1;  ///< copies of the model, each with its own part of the batch
  /// Ranks that share each sequence: T / context tokens each, and keys and values of the others pass by (ring
  /// attention, Liu et al., 2023). They sum gradients and keep parts with the ranks that
  /// have other sequences.
  int context = 1;
  /// What data-parallel ranks keep parts of instead of copies (Rajbhandari et al., 2020). 1: masters and
  /// optimizer state; 2: gradients, too; 3: weights, which are gathered for each use (FSDP). Tensors of one
  /// dimension (norms, biases) stay whole.
  int zero = 0;
  /// Embedding, last norm and head are one unit, gathered at the beginning of a step with zero 3 and reduced
  /// at its end (PyTorch's FSDP2, whose root module does not reshard).
  bool root_unit = false;
  /// Gradients are summed over data-parallel ranks after the backward pass, not beside it.
  bool late_sums = false;
  /// Ranks that share each layer's products: rows of qkv and fc1, columns of proj and fc2 (Shoeybi et al.,
  /// 2019).
  int tensor = 1;
  /// Norms and residuals of tensor-parallel ranks on a part of the rows each (Korthikanti et al., 2022).
  bool sequence_parallel = false;
  /// Embedding, head and loss of tensor-parallel ranks on a part of the vocabulary each, where --tp divides
  /// it (Shoeybi et al., 2019). Backends have no kernels for it yet: it is planned, and held to one rank by
  /// tests.
  bool vocab_parallel = false;
  int pipeline = 1;  ///< stages of consecutive layers
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int interleave = 1;  ///< parts of the model that a stage has (Narayanan et al., 2021)
  /// The first and the last part have one layer less than the others, for the embedding and the head (Llama
  /// 3, arXiv 2407.21783, section 3.3.2).
  bool short_ends = false;

  /// Over how many ranks gradients are summed and parts are kept.
  [[nodiscard]] int data_ranks() const { return data * context; }
  [[nodiscard]] int parts() const { return pipeline * interleave; }  ///< of the model
  /// Of all parts, but that `short_ends` takes one from the first and the last.
  [[nodiscard]] std::int64_t layers_per_part(std::int64_t layers) const {
    return (layers + (short_ends ? 2 : 0)) / parts();
  }
  [[nodiscard]] program::Mesh mesh() const {
    return {.tensor = tensor,
            .data = data_ranks(),
            .pipeline = pipeline,
            .context = context,
            .interleave = interleave};
  }
  [[nodiscard]] int ranks() const { return mesh().size(); }
  /// Which copy of the model a rank belongs to.
  [[nodiscard]] int copy_of(const program::Coordinates& rank) const { return rank.data / context; }
  /// The tokens that a rank has of each sequence.
  [[nodiscard]] program::Pieces pieces_of(const program::Coordinates& rank) const {
    return {.parts = context, .index = rank.data % context};
  }
  bool operator==(const Sharding&) const = default;
};

/// Throws core::UsageError that names the values and says what to do: degrees below 1 or that do not divide
/// what they split, more stages than layers, options that contradict each other. `batch` and `seq` are those
/// of one micro-batch, with whole sequences.
void check(const Sharding& sharding, const model::ModelConfig& config, std::int64_t batch, std::int64_t seq,
           int micro_batches);

}  // namespace rooflm::compile
