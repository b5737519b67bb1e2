// Resources shared by the kernels of one GPU: streams, scratch memory, GEMM plans.
#include "backends/cuda/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <utility>

#include "backends/cuda/check.h"
#include "backends/cuda/cudnn_attention.h"
#include "backends/cuda/device.h"
#include "backends/cuda/faults.h"
#include "backends/cuda/gemm.h"
#include "backends/cuda/kernels/chain.h"
#include "backends/cuda/kernels/device_probe.h"
#include "backends/cuda/kernels/heads.h"
#include "backends/cuda/kernels_file.h"
#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

/// Throws core::OutOfMemory if other processes have taken the device's memory.
void require_room(int index) {
  constexpr std::size_t kLeastBytes = std::size_t{32} << 20U;
  std::size_t free = 0;
  std::size_t total = 0;
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
  static_cast<void>(cudaGetLastError());
  const bool is_full = error == cudaSuccess && free < kLeastBytes;
  if (error != cudaErrorMemoryAllocation && !is_full) return;
  throw core::OutOfMemory(fmt::format("cuda:{}: {}", index, explain(cudaErrorMemoryAllocation)),
                          static_cast<double>(kLeastBytes));
}

/// Selects the device after checking that it can run this build. Throws core::Unavailable, core::OutOfMemory.
cudaDeviceProp open_device(int index) {
  const auto unavailable = [&](const std::string& reason) {
    return core::Unavailable(fmt::format("cuda:{} is not available here: {}", index, reason));
  };
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw unavailable(query_cuda().reason);
  }
  if (index >= count) throw unavailable(fmt::format("there are {} GPUs, cuda:0 is the first", count));
  require_room(index);
  try {
    select_device(index);
  } catch (const core::Unavailable& error) {
    throw unavailable(error.what());
  }
  if (const std::string failure = probe_device(index); !failure.empty()) throw unavailable(failure);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "asking for the device's properties");
  return properties;
}

enum class Priority : std::uint8_t { low, high };

StreamHandle make_stream(Priority priority) {
  int low = 0;
  int high = 0;
  check(cudaDeviceGetStreamPriorityRange(&low, &high), "creating a stream");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority == Priority::low ? low : high),
        "creating a stream");
  return StreamHandle(stream);
}

EventHandle make_order_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  return EventHandle(event);
}

/// A pool that keeps freed memory until it is destroyed.
PoolHandle make_pool(int index) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = index;
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties), "creating a memory pool");
  PoolHandle handle(pool);
  auto keep = std::numeric_limits<std::uint64_t>::max();
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "setting up a memory pool");
  return handle;
}

}  // namespace

EventHandle make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "creating an event");
  return EventHandle(event);
}

void* allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  check(cudaHostAlloc(&data, bytes, cudaHostAllocDefault), "allocating pinned memory");
  return data;
}

DeviceMemory::DeviceMemory(cudaMemPool_t pool, cudaStream_t stream, std::size_t bytes)
    : stream_(stream), bytes_(bytes) {
  if (bytes > 0) check_allocation(cudaMallocFromPoolAsync(&data_, bytes, pool, stream), bytes);
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) static_cast<void>(cudaFreeAsync(data_, stream_));
}

Context::Context(int index, const CudaOptions& options) : index_(index), options_(options) {
  const cudaDeviceProp properties = open_device(index);
  kernels_ = kernels_for(index);
  sm_count_ = properties.multiProcessorCount;
  name_ = properties.name;
  stream_ = make_stream(Priority::high);
  background_ = make_stream(Priority::low);
  communication_ = make_stream(Priority::high);
  forked_ = make_order_event();
  for (Marks& marks : branches_) marks.stream = make_stream(Priority::high);
  marked_ = make_order_event();
  pool_ = make_pool(index);
  staging_ = std::make_unique<Staging>();
  gemm_plans_ = std::make_unique<GemmPlans>(*this);
  ids_ = std::make_unique<IdGuard>();
  progress_ = std::make_unique<Progress>();
  gate_ = std::make_unique<StreamGate>();
}

Context::~Context() { static_cast<void>(cudaStreamSynchronize(stream())); }

void Context::select() const {
  check(cudaSetDevice(index_), "selecting the device");
  use_kernels(kernels_);
}

bool Context::is_recording() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream(), &status), "asking whether a step is recorded");
  return status == cudaStreamCaptureStatusActive;
}

cudaStream_t Context::side_stream(program::Lane lane) const {
  return lane == program::Lane::communication ? communication_.get() : background_.get();
}

cudaStream_t Context::stream_of(program::Lane lane) const {
  if (lane == program::Lane::compute || in_order_ || !is_recording()) return stream();
  const cudaStream_t side = side_stream(lane);
  check(cudaEventRecord(forked_.get(), stream()), "running kernels beside each other");
  check(cudaStreamWaitEvent(side, forked_.get()), "running kernels beside each other");
  return side;
}

void Context::begin_recording(Overlap overlap) {
  in_order_ = overlap == Overlap::none;
  done_.clear();
  chain_launches(overlap == Overlap::starts);
}

void Context::mark_done(int index, program::Lane lane) {
  if (in_order_ || !is_recording()) return;
  EventHandle& done = done_[index] = make_order_event();
  check(cudaEventRecord(done.get(), side_stream(lane)), "running kernels beside each other");
}

void Context::wait_for(int index) const {
  const auto done = done_.find(index);
  // Outside of recordings everything runs in submission order.
  if (done == done_.end() || !is_recording()) return;
  check(cudaStreamWaitEvent(stream(), done->second.get()), "running kernels beside each other");
}

cudaStream_t Context::branch(Branch which) {
  // Without per-op marks a second branch is not worth it: the few phase marks may be slightly late.
  if (!in_order_) which = Branch::progress;
  Marks& marks = branches_.at(static_cast<std::size_t>(which));
  check(cudaEventRecord(marked_.get(), stream()), "marking a branch");
  check(cudaStreamWaitEvent(marks.stream.get(), marked_.get(), 0), "marking a branch");
  marks.is_used = true;
  return marks.stream.get();
}

void Context::wait_for_stream(cudaStream_t other) const {
  check(cudaEventRecord(marked_.get(), other), "joining a branch");
  check(cudaStreamWaitEvent(stream(), marked_.get(), 0), "joining a branch");
}

void Context::join_branches() {
  for (Marks& marks : branches_) {
    if (std::exchange(marks.is_used, false)) wait_for_stream(marks.stream.get());
  }
  for (auto& [channel, marks] : messages_) {
    if (std::exchange(marks.is_used, false)) wait_for_stream(marks.stream.get());
  }
}

std::vector<cudaStream_t> Context::work_streams() const {
  std::vector<cudaStream_t> streams = {stream(), background_.get(), communication_.get()};
  for (const auto& [channel, marks] : messages_) streams.push_back(marks.stream.get());
  return streams;
}

cudaStream_t Context::message_stream(std::int64_t channel, cudaStream_t after) {
  Marks& marks = messages_[channel];
  if (marks.stream.get() == nullptr) marks.stream = make_stream(Priority::high);
  check(cudaEventRecord(forked_.get(), after), "sending a message");
  check(cudaStreamWaitEvent(marks.stream.get(), forked_.get(), 0), "sending a message");
  marks.is_used = is_recording();
  return marks.stream.get();
}

void* Context::scratch(std::size_t bytes) {
  if (scratch_.empty() || scratch_.back().bytes() < bytes) {
    const std::size_t doubled = scratch_.empty() ? 0 : 2 * scratch_.back().bytes();
    scratch_.push_back(allocate(std::max(bytes, doubled)));
  }
  return scratch_.back().data();
}

int Context::matmul_multiprocessors() const {
  return spared_ == 0 || in_order_ || !is_recording() ? 0 : sm_count_ - spared_;
}

std::shared_ptr<const RopeTables> Context::rope_tables(std::int64_t seq, const program::Rotary& rotary,
                                                       const TokenPlaces& places) {
  auto& entry = rope_tables_[{seq, rotary, places.first, places.second}];
  if (entry != nullptr) return entry;
  const std::size_t half = rotary.frequencies.size();
  const DeviceMemory frequencies = allocate(half * sizeof(double));
  copy_in(frequencies.data(), rotary.frequencies.data(), half * sizeof(double));
  const std::size_t bytes = static_cast<std::size_t>(seq) * half * sizeof(float);
  auto tables = std::make_shared<RopeTables>(RopeTables{allocate(bytes), allocate(bytes)});
  launch_rope_tables(stream(), seq, static_cast<std::int64_t>(half),
                     static_cast<const double*>(frequencies.data()), rotary.amplitude, places,
                     static_cast<float*>(tables->cosines.data()), static_cast<float*>(tables->sines.data()));
  return entry = std::move(tables);
}

CudnnAttention& Context::cudnn() {
  if (cudnn_ == nullptr) cudnn_ = std::make_unique<CudnnAttention>(index_, stream());
  return *cudnn_;
}

void Context::copy_in(void* device, const void* host, std::size_t bytes) const {
  if (bytes == 0 || staging_->copy_in(stream(), device, host, bytes)) return;
  if (const cudaError_t error = cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream());
      error != cudaSuccess)
    check(error, fmt::format("copying {} bytes to the device, to {}", bytes, device));
  synchronize();
}

void Context::copy_out(void* host, const void* device, std::size_t bytes) const {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream()), "copying from the device");
  synchronize();
}

/// Polls without pausing, as the driver does: a step of a small model takes a millisecond.
cudaError_t Context::wait_watched() const {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kBetweenLooks{5};
  const auto begin = Clock::now();
  auto looked = begin;
  while (true) {
    const cudaError_t error = cudaStreamQuery(stream());
    if (error != cudaErrorNotReady) return error;
    const auto now = Clock::now();
    if (now - looked < kBetweenLooks) continue;
    looked = now;
    watch_(std::chrono::duration<double>(now - begin).count());
  }
}

void Context::synchronize() const {
  try {
    if (has_messages() && !is_recording()) {
      for (const auto& [channel, marks] : messages_) wait_for_stream(marks.stream.get());
    }
  } catch (const std::exception&) {
    throw_fault();  // of an earlier op, which it names
    throw;
  }
  const cudaError_t error = watch_ ? wait_watched() : cudaStreamSynchronize(stream());
  if (error != cudaSuccess) {
    throw_fault();
    check(error, "waiting for what was submitted");
  }
  progress_->clear();
  ids_->verify(*this);
}

void Context::throw_fault() const {
  const cudaError_t error = cudaStreamQuery(stream());
  if (!is_fault(error)) return;
  const Progress::Place place = progress_->current();
  constexpr std::string_view kHowToNameIt =
      "with CUDA_LAUNCH_BLOCKING=1 in the environment ops run one by one, and it is named";
  if (place.op.empty()) {
    throw core::Unavailable(fmt::format("CUDA: a kernel failed: {} ({})", explain(error), kHowToNameIt));
  }
  if (place.is_near) {
    throw core::Unavailable(
        fmt::format("CUDA: {} or one of the {} ops after it failed in a replayed step: {} ({})", place.op,
                    Progress::kSpacing, explain(error), kHowToNameIt));
  }
  throw core::Unavailable(fmt::format("CUDA: {} failed: {}", place.op, explain(error)));
}

}  // namespace rooflm::backends::cuda
