// The best way to run a model on a number of devices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/plan.h"

namespace rooflm::perfmodel {

struct Candidate {
  PlanPoint point{};
  Plan plan{};
  std::string reason{};  ///< why it is not the best
};

/// What a search is for, beside its `top` candidates.
enum class SearchFor : std::uint8_t { best, frontier };

struct SearchResult {
  /// Those that fit, fastest first; then the others by memory. Only what has a plan.
  std::vector<Candidate> candidates{};
  /// SearchFor::frontier: what else nothing beats in both time and memory, fastest first.
  std::vector<Candidate> frontier{};
  std::size_t tried = 0;      ///< splits with a micro-batch and a kind of recompute
  std::size_t planned = 0;    ///< of these, to the end, and they fit
  std::size_t too_large = 0;  ///< do not fit
  std::size_t too_slow = 0;   ///< cannot be among the best
};

inline constexpr std::array kNotInterleaved = {1};
/// All of them.
inline constexpr std::size_t kEveryCandidate = std::numeric_limits<std::size_t>::max();

/// Plans every dp x cp x tp x pp = gpus (cp > 1 from sequences of 32,768 on), ZeRO stage and micro-batch up
/// to 16 that the model and `global_batch` (0: 4 sequences a device) allow, each with as little recompute as
/// fits, on all cores. Tensor parallelism stays within a node. Each loser says by how much, and by what
/// most of it is. `interleaved`: how many parts of the model a pipeline's stages may have: more make the
/// bubble shorter, need more memory, and take longer to plan.
///
/// Only the first `top` candidates are asked for. What cannot be one of them is left out as early as that is
/// known: from what a layer takes alone, which is built once for each number of tensor-parallel ranks,
/// micro-batch and kind of recompute (LayerBook); or after the first stage of a pipeline. The first `top` are
/// the same as of a search for every candidate.
///
/// SearchFor::frontier: what cannot be among the best is planned, too, with more recompute than fits, unless
/// its bounds say that another plan beats it in both time and memory.
SearchResult search(const PlanPoint& base, const Setting& setting, int gpus, std::int64_t global_batch,
                    std::size_t top = kEveryCandidate, SearchFor what = SearchFor::best,
                    std::span<const int> interleaved = kNotInterleaved);

/// False where the state of the model alone, split over all of them, is too much for `gpus` devices.
bool may_fit(const PlanPoint& base, const Setting& setting, int gpus);

/// Of all that a search tries on that many devices, one that fits, or else the one that needs least memory of
/// the `few` whose bounds are least: a search that ends with the first that fits, and ranks nothing. Nothing
/// where no split divides the model and the batch, or where none can fit and `few` is 0. Throws
/// core::Unavailable where no program is made of any.
std::optional<Candidate> leanest(const PlanPoint& base, const Setting& setting, int gpus,
                                 std::int64_t global_batch, std::size_t few);

}  // namespace rooflm::perfmodel
