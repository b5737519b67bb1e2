// Resources shared by the kernels of one GPU: streams, scratch memory, GEMM plans.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/handles.h"
#include "backends/cuda/id_guard.h"
#include "backends/cuda/kernels/token_places.h"
#include "backends/cuda/kernels_file.h"
#include "backends/cuda/progress.h"
#include "backends/cuda/staging.h"
#include "backends/cuda/stream_gate.h"
#include "program/program.h"
#include "program/rotary.h"

namespace rooflm::backends::cuda {

class CudnnAttention;
class GemmPlans;

/// Memory from a context's pool, freed in stream order. Move-only.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Throws core::OutOfMemory. 0 bytes give nullptr.
  DeviceMemory(cudaMemPool_t pool, cudaStream_t stream, std::size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    DeviceMemory moved(std::move(other));
    swap(moved);
    return *this;
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  cudaStream_t stream_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// cos and sin [T, pairs], fp32, of the angles of program/rotary.h at place(t).
struct RopeTables {
  DeviceMemory cosines, sines;
};

/// Side branches on which a recording takes marks. Each kind has its own: a progress mark is a kernel, which
/// may wait for a free multiprocessor, so a timestamp queued behind it would be up to 10 us late.
enum class Branch : std::uint8_t { times, progress };

/// Owned by the backend and by each kernel that uses it.
class Context {
 public:
  /// Selects the device and creates its stream, pool and cuBLASLt handle. Throws core::Unavailable.
  Context(int index, const CudaOptions& options);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int sm_count() const { return sm_count_; }
  /// "NVIDIA H200".
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const CudaOptions& options() const { return options_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  /// The stream of a lane. Work on a lane other than compute begins when everything submitted to stream() so
  /// far has run, and may overlap what follows. Its priority is low, except that of communication, for which
  /// other ranks wait. Only in a recording; otherwise this is stream(), and kernels run in submission order.
  [[nodiscard]] cudaStream_t stream_of(program::Lane lane) const;
  /// All streams that ops submit work to.
  [[nodiscard]] std::vector<cudaStream_t> work_streams() const;
  /// The stream for messages of a channel. A message waits for its receiver, and nothing waits for it before
  /// the end of the step. What is submitted there begins after everything submitted to `after` so far.
  [[nodiscard]] cudaStream_t message_stream(std::int64_t channel, cudaStream_t after);
  /// Whether there are message streams. Then a step is recorded as a single graph, since all of its messages
  /// must be received before it ends.
  [[nodiscard]] bool has_messages() const { return !messages_.empty(); }
  /// Call before a recording. Unless something overlaps, lanes do not fork in it: kernels run in submission
  /// order.
  void begin_recording(Overlap overlap);
  /// Records an event: op `index` is the last op submitted so far on its lane's stream.
  void mark_done(int index, program::Lane lane);
  /// Makes stream() wait for that op and everything before it on its lane.
  void wait_for(int index) const;
  /// Sets the number of multiprocessors that collectives of few blocks occupy while they overlap matmuls.
  void spare_multiprocessors(int count) { spared_ = count; }
  /// Multiprocessors that matmuls of the current recording may use; 0: all.
  [[nodiscard]] int matmul_multiprocessors() const;
  [[nodiscard]] cudaMemPool_t pool() const { return pool_.get(); }
  [[nodiscard]] GemmPlans& gemm_plans() const { return *gemm_plans_; }

  [[nodiscard]] DeviceMemory allocate(std::size_t bytes) const { return {pool(), stream(), bytes}; }
  /// Scratch memory of at least `bytes`, reserved while a kernel is made and shared by all kernels, which run
  /// one at a time. Blocks that were handed out stay valid, since recordings keep their addresses.
  [[nodiscard]] void* scratch(std::size_t bytes);
  /// Made on first use and shared by all layers.
  std::shared_ptr<const RopeTables> rope_tables(std::int64_t seq, const program::Rotary& rotary,
                                                const TokenPlaces& places = {});
  /// cuDNN for attention, loaded on first use.
  CudnnAttention& cudnn();
  [[nodiscard]] IdGuard& ids() const { return *ids_; }
  [[nodiscard]] Progress& progress() const { return *progress_; }
  [[nodiscard]] StreamGate& gate() const { return *gate_; }
  /// Copies in stream order. Host memory may be reused when they return. Small copies to the device do not
  /// wait.
  void copy_in(void* device, const void* host, std::size_t bytes) const;
  void copy_out(void* host, const void* device, std::size_t bytes) const;
  /// `watch` is called repeatedly, with the seconds waited so far, while the host waits for the device. An
  /// exception that it throws ends the wait.
  void set_watch(std::function<void(double waited_s)> watch) { watch_ = std::move(watch); }
  /// Waits for everything submitted. Throws core::Unavailable, naming the op, if a kernel failed, and
  /// core::InputError if a kernel met an id outside the vocabulary.
  void synchronize() const;
  /// Whether submissions are being recorded instead of run.
  [[nodiscard]] bool is_recording() const;
  /// As `synchronize`, throws if a kernel failed; does not wait.
  void throw_fault() const;
  /// A side stream for marks in recordings, which waits for everything submitted to stream() so far.
  /// `join_branches` makes stream() wait for the branches and message streams that were used.
  cudaStream_t branch(Branch which);
  void join_branches();
  /// Makes this device, and its launchers, current for the calling thread.
  void select() const;

 private:
  using RopeKey = std::tuple<std::int64_t, program::Rotary, std::int64_t, std::int64_t>;
  int index_;
  CudaOptions options_;
  const KernelEntry* kernels_ = nullptr;
  int sm_count_ = 0;
  std::string name_;
  [[nodiscard]] cudaStream_t side_stream(program::Lane lane) const;
  [[nodiscard]] cudaError_t wait_watched() const;
  void wait_for_stream(cudaStream_t other) const;
  StreamHandle stream_, background_, communication_;
  EventHandle forked_;
  std::map<int, EventHandle> done_;  ///< by op, for lanes other than compute
  bool in_order_ = false;
  int spared_ = 0;
  struct Marks {
    StreamHandle stream;
    bool is_used = false;
  };
  std::array<Marks, 2> branches_;           ///< by Branch
  std::map<std::int64_t, Marks> messages_;  ///< by channel; is_used: in the current recording
  EventHandle marked_;                      ///< orders stream() and the side streams
  PoolHandle pool_;
  std::vector<DeviceMemory> scratch_;  ///< the last one is the largest
  std::map<RopeKey, std::shared_ptr<const RopeTables>> rope_tables_;
  std::unique_ptr<GemmPlans> gemm_plans_;
  std::unique_ptr<CudnnAttention> cudnn_;
  std::unique_ptr<IdGuard> ids_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<StreamGate> gate_;
  std::function<void(double)> watch_;
};

}  // namespace rooflm::backends::cuda
