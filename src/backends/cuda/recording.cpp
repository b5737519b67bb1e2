// Times and whole steps on a stream: events, and CUDA graphs.
#include "backends/cuda/recording.h"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "backends/cuda/check.h"
#include "backends/cuda/driver_function.h"
#include "backends/cuda/kernels/chain.h"
#include "backends/cuda/kernels/fill.h"
#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

/// Ends the capture of a stream on every way out.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    // Relaxed: what is submitted may load kernels, which other modes forbid meanwhile.
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "recording a step");
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    if (stream_ != nullptr) static_cast<void>(end());
    static_cast<void>(cudaGetLastError());
  }
  GraphHandle finish() {
    GraphHandle graph = end();
    check(status_, "recording a step");
    return graph;
  }

 private:
  GraphHandle end() {
    cudaGraph_t graph = nullptr;
    status_ = cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph);
    return GraphHandle(graph);
  }
  cudaStream_t stream_;
  cudaError_t status_ = cudaSuccess;
};

/// Nodes of a graph before or after another.
std::vector<cudaGraphNode_t> neighbours(cudaGraphNode_t node,
                                        cudaError_t (*ask)(cudaGraphNode_t, cudaGraphNode_t*,
                                                           cudaGraphEdgeData*, std::size_t*)) {
  std::size_t count = 0;
  check(ask(node, nullptr, nullptr, &count), "reading the graph of a step");
  std::vector<cudaGraphNode_t> nodes(count);
  std::vector<cudaGraphEdgeData> edges(count);
  if (count > 0) check(ask(node, nodes.data(), edges.data(), &count), "reading the graph of a step");
  return nodes;
}

using NodeOps = std::unordered_map<cudaGraphNode_t, std::size_t>;

/// What comes next in a stream that is being captured depends on these nodes.
std::vector<cudaGraphNode_t> ends_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  check(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count),
        "asking what was recorded");
  if (status != cudaStreamCaptureStatusActive) return {};
  return {nodes, nodes + count};
}

/// Enters the nodes that were captured since the last call as those of `op`: from the ends of the streams
/// that ops are given to back to nodes that are known. Each node and edge is visited once in all calls
/// together. Marks are in a stream of their own, from which no op depends.
void add_nodes(NodeOps& known, const Context& context, std::size_t op) {
  std::vector<cudaGraphNode_t> open;
  for (const cudaStream_t stream : context.work_streams()) {
    for (const cudaGraphNode_t node : ends_of(stream)) open.push_back(node);
  }
  while (!open.empty()) {
    const cudaGraphNode_t node = open.back();
    open.pop_back();
    if (!known.emplace(node, op).second) continue;
    for (const cudaGraphNode_t before : neighbours(node, cudaGraphNodeGetDependencies))
      open.push_back(before);
  }
}

/// CUgraphNodeType. Asked of the driver: the runtime has an error for kinds that it has no name for, such as
/// the stream memory operations with which NCCL's copies wait for other GPUs.
using NodeType = int;
constexpr NodeType kStreamMemoryOperations = 12;

NodeType type_of(cudaGraphNode_t node) {
  using GetType = int (*)(cudaGraphNode_t, NodeType*);
  static const auto get_type = driver_function<GetType>("cuGraphNodeGetType");
  NodeType type = -1;
  if (get_type != nullptr && get_type(node, &type) == 0) return type;
  throw core::Unavailable("CUDA: reading the graph of a step: the driver does not tell the type of a node");
}

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), "reading the graph of a step");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) check(cudaGraphGetNodes(graph, nodes.data(), &count), "reading the graph of a step");
  return nodes;
}

/// All nodes of the graph but marks of time, waits and nodes that do nothing.
std::vector<NodeOp> list_nodes(cudaGraph_t graph, const NodeOps& ops) {
  std::vector<NodeOp> list;
  for (const cudaGraphNode_t node : nodes_of(graph)) {
    const NodeType type = type_of(node);
    if (type == cudaGraphNodeTypeEventRecord || type == cudaGraphNodeTypeWaitEvent ||
        type == cudaGraphNodeTypeEmpty || type == kStreamMemoryOperations) {
      continue;
    }
    const auto found = ops.find(node);
    list.push_back({.node = reinterpret_cast<std::uintptr_t>(node)});
    if (found != ops.end()) list.back().op = found->second;
  }
  return list;
}

/// What a memset writes, where it writes one row.
std::optional<Fill> fill_of(cudaGraphNode_t node) {
  if (type_of(node) != cudaGraphNodeTypeMemset) return std::nullopt;
  cudaMemsetParams params{};
  check(cudaGraphMemsetNodeGetParams(node, &params), "reading the graph of a step");
  if (params.height > 1) return std::nullopt;
  constexpr std::uint32_t kEachByte = 0x01010101U;
  constexpr std::uint32_t kEachPair = 0x00010001U;
  const std::uint32_t pattern = params.elementSize == 1   ? (params.value & 0xffU) * kEachByte
                                : params.elementSize == 2 ? (params.value & 0xffffU) * kEachPair
                                                          : params.value;
  return Fill{.to = params.dst, .bytes = params.width * params.elementSize, .pattern = pattern};
}

/// Puts kernels in the place of memsets, those of libraries, too: a graph of kernels alone is submitted in a
/// few microseconds, while each memset in it costs the host two more, and twenty where there are many. The
/// kernel belongs to the memset's op.
void replace_memsets(cudaGraph_t graph, NodeOps& ops) {
  for (const cudaGraphNode_t node : nodes_of(graph)) {
    const std::optional<Fill> fill = fill_of(node);
    if (!fill) continue;
    const auto before = neighbours(node, cudaGraphNodeGetDependencies);
    const auto after = neighbours(node, cudaGraphNodeGetDependentNodes);
    cudaGraphNode_t kernel = nullptr;
    check(add_fill_node(graph, before.data(), before.size(), *fill, &kernel), "changing the graph of a step");
    const std::vector<cudaGraphNode_t> from(after.size(), kernel);
    if (!after.empty()) {
      check(cudaGraphAddDependencies(graph, from.data(), after.data(), nullptr, after.size()),
            "changing the graph of a step");
    }
    if (const auto op = ops.find(node); op != ops.end()) ops.emplace(kernel, std::size_t{op->second});
    ops.erase(node);
    check(cudaGraphDestroyNode(node), "changing the graph of a step");
  }
}

}  // namespace

EventStopwatch::EventStopwatch(std::shared_ptr<Context> context, std::size_t marks)
    : context_(std::move(context)) {
  for (std::size_t i = 0; i < marks; ++i) events_.push_back(make_event());
}

void EventStopwatch::mark(std::size_t index) {
  const unsigned int flags = context_->is_recording() ? cudaEventRecordExternal : cudaEventRecordDefault;
  check(cudaEventRecordWithFlags(events_.at(index).get(), context_->stream(), flags), "taking a time");
}

/// In another branch of the graph: what follows in the stream waits for the work before it, not for the mark,
/// which would take two microseconds.
void EventStopwatch::mark_aside(std::size_t index) {
  if (!context_->is_recording()) return mark(index);
  check(cudaEventRecordWithFlags(events_.at(index).get(), context_->branch(Branch::times),
                                 cudaEventRecordExternal),
        "taking a time");
}

double EventStopwatch::elapsed_s(std::size_t from, std::size_t to) const {
  constexpr double kMs = 1e-3;
  float ms = 0;
  check(cudaEventElapsedTime(&ms, events_.at(from).get(), events_.at(to).get()), "reading a time");
  return static_cast<double>(ms) * kMs;
}

GraphRecording::GraphRecording(std::shared_ptr<Context> context, const Backend::SubmitStep& submit,
                               Overlap overlap)
    : context_(std::move(context)) {
  // The host gives a part's nodes to the device about twice as fast as the device runs short ones.
  constexpr std::size_t kFirstPart = 64;
  context_->begin_recording(overlap);
  NodeOps ops;
  std::optional<Capture> capture(std::in_place, context_->stream());
  const auto end_part = [&] {
    context_->join_branches();
    GraphHandle graph = capture->finish();
    replace_memsets(graph.get(), ops);
    const std::vector<NodeOp> nodes = list_nodes(graph.get(), ops);
    add_part(std::move(graph), nodes);
  };
  std::size_t left = kFirstPart;
  submit([&](std::size_t op) {
    add_nodes(ops, *context_, op);
    if (overlap != Overlap::none || context_->has_messages() || --left > 0) return;
    end_part();
    left = kFirstPart << graphs_.size();
    ops.clear();  // a graph that is made later may have a node at the same address
    capture.emplace(context_->stream());
  });
  end_part();
  chain_launches(false);
  context_->synchronize();
}

void GraphRecording::add_part(GraphHandle graph, const std::vector<NodeOp>& nodes) {
  for (NodeOp node : nodes) {
    node.part = graphs_.size();
    nodes_.push_back(node);
  }
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph.get(), cudaGraphInstantiateFlagUseNodePriority),
        "making a graph of a step");
  executables_.emplace_back(executable);
  check(cudaGraphUpload(executable, context_->stream()), "uploading the graph of a step");
  graphs_.push_back(std::move(graph));
}

void GraphRecording::replay(const std::function<void()>& may_begin) {
  context_->select();
  for (const GraphExecHandle& part : executables_) {
    check(cudaGraphLaunch(part.get(), context_->stream()), "replaying a step");
    if (&part == &executables_.front()) may_begin();
  }
}

}  // namespace rooflm::backends::cuda
