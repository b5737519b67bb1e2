// Some observed steps of all ranks of a split run, for its timeline.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engines/engine.h"
#include "lab/op_moments.h"
#include "program/groups.h"
#include "ranks/transport.h"
#include "record/rows.h"
#include "record/writer.h"

namespace rooflm::lab {

/// Of so many observed steps the record keeps what other ranks did.
inline constexpr std::size_t kRankSteps = 3;

/// Numbers of the steps nearest to the median, the fastest and the slowest, in their order; fewer where there
/// are fewer.
std::vector<std::int64_t> telling_steps(std::span<const ObservedStep> steps);

/// Where steps of ranks go.
struct RankSteps {
  std::int64_t run = 0;        ///< of the first rank's record
  std::int64_t origin_ns = 0;  ///< zero of its events, by the first rank's clock
  bool has_first = false;      ///< whether the steps of the first rank are none that its run has
};

/// Adds to the first rank's record what the others did in its telling steps: a run of kind record::kRankRun
/// for each, with the executions of its ops on the first one's clock, and its ops where they are not those of
/// the first; of the first rank, too, with `has_first`. Facts "groups" say who was together in collectives,
/// and "rank_steps" what is kept. `ops`: trace::op_rows of the rank's program. All ranks call it.
void share_rank_steps(ranks::Transport& ranks, const program::Mesh& mesh, std::span<const record::Op> ops,
                      const ObservedSteps& observed, const RankSteps& where, const std::string& device,
                      record::Writer& record);

/// share_collective_times, whose cells go to the record, and share_rank_steps.
void share_ranks(ranks::Transport& ranks, const program::Mesh& mesh, const engines::Engine& engine,
                 const ObservedSteps& observed, const RankSteps& where, const std::string& device,
                 record::Writer& record);

}  // namespace rooflm::lab
