// Times and whole steps on a stream: events, and CUDA graphs.
#include "backends/cuda/recording.h"

#include <utility>

#include "backends/cuda/check.h"

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
  check(cudaEventRecordWithFlags(events_.at(index).get(), context_->mark_branch(), cudaEventRecordExternal),
        "taking a time");
}

double EventStopwatch::elapsed_s(std::size_t from, std::size_t to) const {
  constexpr double kMs = 1e-3;
  float ms = 0;
  check(cudaEventElapsedTime(&ms, events_.at(from).get(), events_.at(to).get()), "reading a time");
  return static_cast<double>(ms) * kMs;
}

GraphRecording::GraphRecording(std::shared_ptr<Context> context, const std::function<void()>& submit,
                               bool in_order)
    : context_(std::move(context)) {
  context_->keep_order(in_order);
  Capture capture(context_->stream());
  submit();
  context_->join_marks();
  const GraphHandle graph = capture.finish();
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph.get(), cudaGraphInstantiateFlagUseNodePriority),
        "making a graph of a step");
  graph_ = GraphExecHandle(executable);
  check(cudaGraphUpload(executable, context_->stream()), "uploading the graph of a step");
  context_->synchronize();
}

void GraphRecording::replay() {
  check(cudaGraphLaunch(graph_.get(), context_->stream()), "replaying a step");
}

}  // namespace rooflm::backends::cuda
