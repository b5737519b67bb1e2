// The model of a run as a graph of blocks, with layers folded and the cost of each block, for drawings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/model/run_data.h"
#include "report/model/summaries.h"

namespace rooflm::report {

/// A block, or a frame around several. Figures are of all layers together.
struct ModelNode {
  std::string name;        ///< "qkv", "attention", "layer"
  std::string path;        ///< "attention/qkv"; "" of the frame around a layer
  std::string source;      ///< "src/model/forward.cpp:130"; "" where the record does not say
  std::int64_t times = 1;  ///< layers, of the frame around one
  std::size_t depth = 0;   ///< frames around it
  std::size_t last = 0;    ///< the last node inside of a frame; of a block itself
  bool is_frame = false;
  std::vector<Group> phases{};   ///< its work in each phase, in the order of the step
  std::optional<double> flop{};  ///< by shapes; nothing where nobody counted, as of a recorded program
  std::optional<double> bytes{};
  std::optional<double> time_s{};      ///< in kernels; nothing where no step was observed
  std::optional<double> time_share{};  ///< of the time in kernels of the step
  std::string bound{};                 ///< of the phase with the highest roof
};

/// `to` reads in the forward pass what `from` wrote; both are blocks.
struct ModelEdge {
  std::size_t from = 0, to = 0;  ///< into ModelGraph::nodes
  bool is_back = false;          ///< to a block that stands above: the next layer's
  /// Its lane beside the blocks, 0 the nearest, so that no two edges overlap; back edges have separate lanes.
  /// Nothing if `to` is directly below `from`.
  std::optional<std::size_t> lane{};
};

struct ModelGraph {
  std::vector<ModelNode> nodes;  ///< from top to bottom, frames before what they hold
  std::vector<ModelEdge> edges;
  std::vector<std::string> lacks;  ///< what the record lacks, in sentences
};

/// Blocks in the order in which the forward pass comes to them. Empty without ops.
ModelGraph model_graph(const RunData& run);

/// The least number of lanes that hold all edges of one side.
std::size_t lanes_of(const ModelGraph& graph, bool are_back);

}  // namespace rooflm::report
