// What generating text would take: time of a first and of further tokens, what binds them, memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "compile/recipe.h"
#include "core/dtype.h"
#include "model/config.h"
#include "perfmodel/inference_engine.h"
#include "perfmodel/plan.h"

namespace rooflm::perfmodel {

/// prefill: B prompts of T tokens. decode: one more token of each of B texts that are T tokens long with it.
/// serve: as many texts at once as there is room for, each a prompt of T tokens and some more of output.
enum class InferencePhase : std::uint8_t { prefill, decode, serve };
constexpr auto names_of(InferencePhase) {
  return core::named<InferencePhase>("--phase", {{InferencePhase::prefill, "prefill"},
                                                 {InferencePhase::decode, "decode"},
                                                 {InferencePhase::serve, "serve"}});
}

struct InferencePoint {
  model::ModelConfig config{};
  /// Fitted to the device. Tensor-parallel ranks split it, or ranks that share experts, each with texts of
  /// its own.
  compile::StepOptions step{};
  StoredWeights weights{};
  core::DType cache = core::DType::bf16;  ///< of keys and values
  InferencePhase phase = InferencePhase::decode;
  std::int64_t batch = 1;   ///< B, of all ranks; of serve 0: as many as fit
  std::int64_t seq = 0;     ///< T
  std::int64_t output = 0;  ///< of serve: tokens of an answer
};

/// Seconds of one pass over the model, by what they go to; they add up.
struct PassTime {
  double weights_s = 0, cache_s = 0;  ///< reading and writing them
  double other_bytes_s = 0;           ///< activations
  double arithmetic_s = 0;            ///< of ops that arithmetic binds
  double launch_s = 0;                ///< what a kernel takes however little it does
  double collective_s = 0;
  double host_s = 0;                         ///< the device waits for the host
  double weight_bytes = 0, cache_bytes = 0;  ///< of one rank
  double spread_s = 0;                       ///< half width of the interval
  Basis basis = Basis::measured;

  [[nodiscard]] double total() const {
    return weights_s + cache_s + other_bytes_s + arithmetic_s + launch_s + collective_s + host_s;
  }
  /// Each number `times` as large.
  void add(const PassTime& other, double times);
  /// The largest part in words: "bytes of weights".
  [[nodiscard]] std::string bound() const;
};

/// Memory of one rank.
struct InferenceMemory {
  double weight_bytes = 0, activation_bytes = 0, context_bytes = 0, buffer_bytes = 0;
  double cache_byte_per_token = 0;  ///< of one text
  [[nodiscard]] double without_cache() const {
    return weight_bytes + activation_bytes + context_bytes + buffer_bytes;
  }
};

struct InferencePlan {
  bool fits = true;
  std::int64_t batch = 0;  ///< texts at once, of all ranks
  int sharing = 1;         ///< ranks that have as many of them each
  double kept_tokens = 0;  ///< of each, in the cache
  InferenceMemory memory{};
  double memory_limit_bytes = 0;
  std::int64_t largest_batch = 0;    ///< texts of so many tokens that fit
  std::int64_t largest_context = 0;  ///< tokens of `batch` texts that fit
  int gpus_needed = 0;  ///< of tensor-parallel ranks, or of those that share experts; 0: none is enough
  double first_s = 0;   ///< TTFT, without waiting for others
  double next_s = 0;    ///< ITL, of a running text (TPOT)
  /// Output tokens of all texts; of prefill those of prompts.
  double token_per_s = 0;
  PassTime pass{};  ///< of decoding; of serve with its share of prefill; of prefill that

  [[nodiscard]] double peak_bytes() const {
    return memory.without_cache() +
           memory.cache_byte_per_token * kept_tokens * static_cast<double>(batch) / sharing;
  }
};

/// Throws core::UsageError for what cannot be split so, a batch that ranks with experts cannot share, and
/// texts beyond the positions of the model.
InferencePlan plan_inference(const InferencePoint& point, const Setting& setting,
                             const InferenceEngine& engine);

}  // namespace rooflm::perfmodel
