// The program of a step as a graph of blocks with the layers folded into one, for drawings of the model.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/forward.h"
#include "program/program.h"
#include "record/rows.h"

namespace rooflm::lab {

/// That block `to` reads what block `from` wrote in the forward pass.
struct BlockEdge {
  std::string from, to;        ///< "attention/qkv"; layers folded
  bool to_next_layer = false;  ///< `to` is in the layer after that of `from`
  bool operator==(const BlockEdge&) const = default;
};

/// Each edge between two blocks once, in the order in which the program first has it. The reader may be in
/// the backward pass, if a loss and its gradient are one op. Recomputed ops do not count; a fused op belongs
/// to the block that it is in.
std::vector<BlockEdge> block_edges(const program::Program& program);

/// The fact record::kModelFact: {"edges": [[from, to, to_next_layer]], "sources": {block: "file:line"}}.
record::Fact model_fact(const program::Program& program, std::span<const model::BlockSource> sources);

}  // namespace rooflm::lab
