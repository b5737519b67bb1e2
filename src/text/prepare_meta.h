// meta.json of a prepared directory, and the entropies in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "text/prepare.h"

namespace rooflm::text {

/// -sum p log p of the frequencies in `counts`, in nats; 0 when all are 0.
double unigram_entropy(std::span<const std::uint64_t> counts);

/// -1/n sum over the tokens counted in `counts` of log((c + 1) / (N + V)), c and N counted in `model`, V its
/// length.
double unigram_cross_entropy(std::span<const std::uint64_t> counts, std::span<const std::uint64_t> model);

/// The text of meta.json; paths are written as file names.
std::string meta_json(const PreparedData& data);

}  // namespace rooflm::text
