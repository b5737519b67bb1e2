// Texts that the ranks of a job generate together: their distribution over ranks, and all of them on rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compile/sharding.h"
#include "lab/job.h"
#include "train/generate.h"

namespace rooflm::cli {

/// Places [begin, end) in a list.
struct Places {
  std::size_t begin = 0, end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
};

/// The texts of copy `copy` of `copies`, of `count` in all: consecutive, as evenly as possible, the first
/// copy at least as many as any other.
Places own_places(std::size_t count, int copies, int copy);

/// Gives all ranks the texts of rank 0. All ranks call it; a single process keeps its own.
std::vector<std::string> from_first(const lab::Ranks& ranks, const std::vector<std::string>& texts);

/// The texts that one copy generated, and its times.
struct CopyTexts {
  std::vector<std::string> texts{};
  train::Generation generation{};
};

/// Results of all copies that had texts, in the order of the texts: on rank 0; empty on others. Of a step's
/// engine only its time is sent. All ranks call it and wait for each other without a timeout.
std::vector<CopyTexts> gather_texts(const lab::Ranks& ranks, const compile::Sharding& sharding,
                                    const CopyTexts& own);

}  // namespace rooflm::cli
