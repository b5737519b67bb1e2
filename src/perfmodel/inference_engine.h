// What a program that generates text costs besides kernels (data/engines.json), and how it keeps weights.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/weight_format.h"

namespace rooflm::perfmodel {

/// How the weights of layers are stored.
struct StoredWeights {
  std::string name = "bf16";  ///< as typed: "int4:32"
  core::WeightFormat format = core::WeightFormat::bf16;
  double bits = 16;  ///< of one, those of scales included
};
/// bf16, fp8, int8 (a scale a row), int4 or nf4 with groups of 64, "int4:32" with groups of 32: int4 has a
/// scale and a zero of 16 bits a group, nf4 a scale of 32 bits. Throws core::UsageError.
StoredWeights parse_stored_weights(std::string_view name);

struct InferenceEngine {
  std::string name{}, framework{}, source{};
  /// By format, the share of the bandwidth of GEMMs that products with few rows reach.
  std::map<core::WeightFormat, double> byte_share{};
  double launches_per_layer = 0;  ///< that the host submits while the device computes; 0: a graph is replayed
  double launches_beside = 0;     ///< that the device waits for, between two steps
  double launch_host_s = 0;
  std::int64_t most_texts = 0, most_tokens = 0;  ///< of a step
  double free_share = 1;        ///< of what weights and activations leave, what the cache gets
  bool reserves_output = true;  ///< a text starts once the cache has room for all that it may become
  bool has_quantised_head = false;
  double spread = 0;  ///< relative half width of times beside that of its kernels
};

const std::vector<InferenceEngine>& inference_engines();
/// Throws core::UsageError with a suggestion.
const InferenceEngine& find_inference_engine(std::string_view name);

}  // namespace rooflm::perfmodel
