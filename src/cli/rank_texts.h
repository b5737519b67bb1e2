// Texts that the ranks of a job generate together: who has which, and all of them on the first rank.
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

/// Which of `count` texts copy `copy` of `copies` has: neighbours, as evenly as can be, the first copy at
/// least as many as any other.
Places own_places(std::size_t count, int copies, int copy);

/// The first rank's, for all. All ranks call it; nothing happens where this process is alone.
std::vector<std::string> from_first(const lab::Ranks& ranks, const std::vector<std::string>& texts);

/// What one copy made of its texts, and in which times.
struct CopyTexts {
  std::vector<std::string> texts{};
  train::Generation generation{};
};

/// Those of all copies that had any, in the order of their texts: on the first rank; on others nothing. Of a
/// step's engine only its time is told. All ranks call it, and wait for each other as long as they live.
std::vector<CopyTexts> gather_texts(const lab::Ranks& ranks, const compile::Sharding& sharding,
                                    const CopyTexts& own);

}  // namespace rooflm::cli
