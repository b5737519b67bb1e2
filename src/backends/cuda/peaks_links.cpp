// Micro-benchmarks of a GPU's launches, graphs and copies.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "backends/cuda/check.h"
#include "backends/cuda/context.h"
#include "backends/cuda/kernels/memory_loops.h"
#include "backends/cuda/peaks.h"
#include "backends/cuda/recording.h"

namespace rooflm::backends::cuda {
namespace {

constexpr double kMs = 1e-3;
constexpr std::size_t kCopyBytes = std::size_t{256} << 20U;
constexpr int kLaunches = 1000;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A context with source and destination memory on both sides.
struct Link {
  std::shared_ptr<Context> context;
  DeviceMemory device;
  PinnedArray<std::byte> pinned;
  std::vector<std::byte> pageable;
  EventHandle begin = make_event();
  EventHandle end = make_event();

  explicit Link(int index)
      : context(std::make_shared<Context>(index, CudaOptions{})),
        device(context->allocate(kCopyBytes)),
        pinned(make_pinned<std::byte>(kCopyBytes)),
        pageable(kCopyBytes) {}

  /// Host time until a copy is done: copies of pageable memory partly run on the CPU.
  double copy_s(void* to, const void* from, cudaMemcpyKind kind) const {
    context->select();
    const double start = now_s();
    check(cudaMemcpyAsync(to, from, kCopyBytes, kind, context->stream()), "copying");
    context->synchronize();
    return now_s() - start;
  }
  template <class Submit>
  double device_s(Submit&& submit) const {
    context->select();
    check(cudaEventRecord(begin.get(), context->stream()), "timing launches");
    submit();
    check(cudaEventRecord(end.get(), context->stream()), "timing launches");
    context->synchronize();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing launches");
    return static_cast<double>(ms) * kMs;
  }
};

void add_copies(std::vector<TimedLoop>& loops, const std::shared_ptr<Link>& link) {
  const auto add = [&](const char* what, void* to, const void* from, cudaMemcpyKind kind) {
    loops.push_back({.what = what,
                     .level = "host",
                     .problem = "256 MiB",
                     .amount = static_cast<double>(kCopyBytes),
                     .run_s = [=] { return link->copy_s(to, from, kind); }});
  };
  void* device = link->device.data();
  add("to device, pinned", device, link->pinned.get(), cudaMemcpyHostToDevice);
  add("from device, pinned", link->pinned.get(), device, cudaMemcpyDeviceToHost);
  add("to device, pageable", device, link->pageable.data(), cudaMemcpyHostToDevice);
  add("from device, pageable", link->pageable.data(), device, cudaMemcpyDeviceToHost);
}

void add_launches(std::vector<TimedLoop>& loops, const std::shared_ptr<Link>& link) {
  const auto add = [&](const char* what, const char* problem, std::function<double()> run_s) {
    loops.push_back({.what = what, .level = "", .problem = problem, .amount = 0, .run_s = std::move(run_s)});
  };
  const auto submit_many = [context = link->context] {
    for (int i = 0; i < kLaunches; ++i) launch_nothing(context->stream());
  };
  const auto graph = std::make_shared<GraphRecording>(
      link->context, [&](const auto& /*submitted*/) { submit_many(); }, Overlap::none);
  add("launch and wait", "an empty kernel", [link] {
    const double start = now_s();
    launch_nothing(link->context->stream());
    link->context->synchronize();
    return now_s() - start;
  });
  add("launch", "1000 in a row", [link, submit_many] { return link->device_s(submit_many) / kLaunches; });
  add("graph node", "1000 in a row",
      [link, graph] { return link->device_s([&] { graph->replay([] {}); }) / kLaunches; });
  add("graph launch", "1000 nodes, host", [link, graph] {
    const double start = now_s();
    graph->replay([] {});
    const double elapsed = now_s() - start;
    link->context->synchronize();
    return elapsed;
  });
}

void add_peers(std::vector<TimedLoop>& loops, const std::shared_ptr<Link>& link, int index) {
  int count = 0;
  check(cudaGetDeviceCount(&count), "counting GPUs");
  for (int other = 0; other < count; ++other) {
    int can_reach = 0;
    if (other == index) continue;
    check(cudaDeviceCanAccessPeer(&can_reach, index, other), "asking for peers");
    if (can_reach == 0) continue;
    const auto peer = std::make_shared<Context>(other, CudaOptions{});
    void* data = nullptr;
    peer->select();
    check_allocation(cudaMalloc(&data, kCopyBytes), kCopyBytes);
    const std::shared_ptr<void> there(data, [](void* pointer) { static_cast<void>(cudaFree(pointer)); });
    link->context->select();
    if (const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
        error != cudaErrorPeerAccessAlreadyEnabled) {
      check(error, "reaching another GPU");
    }
    static_cast<void>(cudaGetLastError());
    loops.push_back({.what = "to peer",
                     .level = fmt::format("cuda:{}", other),
                     .problem = "256 MiB",
                     .amount = static_cast<double>(kCopyBytes),
                     .run_s = [link, there, peer, other, index] {
                       return link->device_s([&] {
                         check(cudaMemcpyPeerAsync(there.get(), other, link->device.data(), index, kCopyBytes,
                                                   link->context->stream()),
                               "copying to another GPU");
                       });
                     }});
  }
}

}  // namespace

std::vector<TimedLoop> link_loops(int index) {
  const auto link = std::make_shared<Link>(index);
  std::vector<TimedLoop> loops;
  add_copies(loops, link);
  add_launches(loops, link);
  add_peers(loops, link, index);
  return loops;
}

}  // namespace rooflm::backends::cuda
