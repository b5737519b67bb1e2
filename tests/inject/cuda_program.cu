// A CUDA program to be recorded: streams, copies, a graph, ranges; and ways to end badly. Built by
// scripts/gpu_check.
//
// cuda_program plain|graph|fork|crash|exit|kill|hang|own: STEPS steps of two kernels, a copy and a memset
// each.
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int kElements = 1 << 20;
constexpr int kBlock = 256;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(9);
}

__global__ void scale(float* values, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kElements) values[i] *= factor;
}

__global__ void add(float* values, const float* others) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kElements) values[i] += others[i];
}

struct Memory {
  float* first = nullptr;
  float* second = nullptr;
  std::vector<float> host = std::vector<float>(kElements, 1.0f);
  cudaStream_t stream = nullptr, other = nullptr;

  Memory() {
    check(cudaMalloc(&first, kElements * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(&second, kElements * sizeof(float)), "cudaMalloc");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreate");
  }
};

void submit(Memory& memory) {
  check(cudaMemsetAsync(memory.second, 0, kElements * sizeof(float), memory.stream), "cudaMemsetAsync");
  nvtxRangePushA("scale");
  scale<<<kElements / kBlock, kBlock, 0, memory.stream>>>(memory.first, 2.0f);
  nvtxRangePop();
  nvtxRangePushA("add");
  add<<<kElements / kBlock, kBlock, 0, memory.stream>>>(memory.first, memory.second);
  nvtxRangePop();
}

void step(Memory& memory, cudaGraphExec_t graph) {
  nvtxRangePushA("step");
  check(cudaMemcpyAsync(memory.first, memory.host.data(), kElements * sizeof(float), cudaMemcpyHostToDevice,
                        memory.other),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(memory.other), "cudaStreamSynchronize");
  if (graph != nullptr) {
    check(cudaGraphLaunch(graph, memory.stream), "cudaGraphLaunch");
  } else {
    submit(memory);
  }
  check(cudaStreamSynchronize(memory.stream), "cudaStreamSynchronize");
  nvtxRangePop();
}

cudaGraphExec_t capture(Memory& memory) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  check(cudaStreamBeginCapture(memory.stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  submit(memory);
  check(cudaStreamEndCapture(memory.stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&made, graph, 0), "cudaGraphInstantiate");
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "plain";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 20;
  if (mode == "own") setenv("CUDA_INJECTION64_PATH", "/nonexistent/lib.so", 1);
  if (mode == "fork" && fork() == 0) {  // the child uses CUDA as well: before its parent does, as it must
    Memory memory;
    for (int i = 0; i < steps; ++i) step(memory, nullptr);
    return 0;
  }
  Memory memory;
  const cudaGraphExec_t graph = mode == "graph" ? capture(memory) : nullptr;
  for (int i = 0; i < steps; ++i) step(memory, graph);
  if (mode == "late-fork" && fork() == 0) return 0;  // without CUDA
  if (mode == "fork" || mode == "late-fork") wait(nullptr);
  std::printf("%d steps\n", steps);
  std::fflush(stdout);
  if (mode == "crash") std::abort();
  if (mode == "exit") _exit(3);
  if (mode == "kill" || mode == "hang") usleep(1'200'000);
  if (mode == "kill") raise(SIGKILL);
  if (mode == "hang") pause();
  return 0;
}
