// What a framework costs besides its kernels (data/frameworks.json).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compile/recipe.h"
#include "perfmodel/cluster.h"
#include "perfmodel/estimate.h"

namespace rooflm::perfmodel {

struct Framework {
  std::string name{};
  std::string engine{}, attention{};  ///< the recipe whose program stands for it
  /// Masters in halves, 16-bit gradients, the loss in chunks, GELU in GEMM epilogues, as the device wants
  /// them.
  bool has_rewrites = true;
  bool is_sequence_parallel = true;  ///< where it is tensor-parallel
  compile::Rewrites rewrites{};      ///< its own
  // compile::StepOptions and compile::Sharding say what these are.
  passes::UnitKind unit_buffers{};
  bool has_current_scales = false;  ///< fp8: passes::Fp8Scaling::current
  bool keeps_fp8_weights = false;   ///< fp8: passes::Fp8Weights::keep
  bool reads_any_layout = false;    ///< fp8: where the device's GEMMs can
  bool has_root_unit = false;
  bool has_late_sums = false;
  bool sends_rows_once = false;  ///< of a token to each node, whichever of its experts are there
  bool scatters_sends = false;   ///< stages send a part of what tensor-parallel ranks all have, and gather it
  /// Pipelines as torch.distributed.pipelining runs them: docs/perfmodel.md, "What frameworks do beside".
  bool has_torch_stages = false;
  bool is_vocab_parallel = false;  ///< compile::Sharding::vocab_parallel, where it is tensor-parallel
  /// The vocabulary is padded to a multiple of this and of the tensor-parallel ranks that share it.
  std::int64_t vocab_multiple = 1;
  std::string attention_kernels{};  ///< FrameworkKernels::attention
  /// By kind of op, the bytes that the framework's kernels move by those of the op (FrameworkKernels::moved).
  std::map<std::string, double, std::less<>> moved{};
  double matmul_spread = 0;  ///< FrameworkKernels::matmul_spread
  double grouped_share = 1;  ///< FrameworkKernels::grouped_share
  double launch_host_s = 0;  ///< of the host, to submit one launch
  bool is_deterministic = true;
  double context_bytes = 0;            ///< CUDA, libraries, workspaces
  double fragmentation = 0;            ///< of what is alive at the peak, lost between tensors
  double memory_spread = 0;            ///< relative half width of what tensors and the allocator hold
  bool has_caching_allocator = false;  ///< PyTorch's (perfmodel/caching_allocator.h): it loses what it loses
  bool has_unread_saves = false;       ///< HeldTensors::has_unread_saves, where it recomputes `every_other`
  bool keeps_last_layer = false;       ///< HeldTensors::keeps_last_layer, without a pipeline
  Basis basis = Basis::assumed;
  std::string source{};
};

const std::vector<Framework>& frameworks();
/// Throws core::UsageError with a suggestion.
const Framework& find_framework(std::string_view name);

/// How the framework starts collectives.
Launches launches_of(const Framework& framework);

/// Takes from a step that is fitted to a device what the framework does not have.
void fit_to_framework(compile::StepOptions& step, const Framework& framework);
/// What the framework makes of a split whose degrees are set.
void fit_to_framework(compile::Sharding& sharding, const Framework& framework);
/// Rows of the embedding and the head, of all ranks: the model's, padded to Sharding::vocab_multiple.
std::int64_t planned_vocabulary(const model::ModelConfig& config, const compile::Sharding& sharding);

}  // namespace rooflm::perfmodel
