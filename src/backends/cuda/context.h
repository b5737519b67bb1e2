// What the kernels of one GPU share: its stream, working memory, plans of products.
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

namespace rooflm::backends::cuda {

class CudnnAttention;
class GemmPlans;

/// Memory of a context, given back to its pool in stream order. Move-only.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Throws core::OutOfMemory. 0 bytes are nullptr.
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

/// cos and sin [T, D/2], fp32, of the angle place(t) * theta^(-2i/D).
struct RopeTables {
  DeviceMemory cosines, sines;
};

/// Marks that a recording takes beside its work. Each kind has a branch of its own: a mark of progress is a
/// kernel, which may wait for a multiprocessor, and a mark of time behind it would be taken up to 10 us late.
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
  /// The GPU's name, as "NVIDIA H200".
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const CudaOptions& options() const { return options_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  /// The stream for work of a lane. That of another lane than compute runs beside what follows, and begins
  /// when everything submitted to stream() so far has run: with low priority, but that of communication, for
  /// which other ranks wait. Only in a recording; elsewhere it is stream(), and kernels run in their order.
  [[nodiscard]] cudaStream_t stream_of(program::Lane lane) const;
  /// What ops submit is in these.
  [[nodiscard]] std::vector<cudaStream_t> work_streams() const;
  /// For messages of a channel, which wait for their receiver, and for which nothing waits before the end of
  /// the step: what is submitted there begins after what was submitted to `after` so far.
  [[nodiscard]] cudaStream_t message_stream(std::int64_t channel, cudaStream_t after);
  /// Whether there are any: then a step is one graph, since each has to end with all of its messages
  /// received.
  [[nodiscard]] bool has_messages() const { return !messages_.empty(); }
  /// Called before a recording. With true, nothing forks in it: kernels run in their order there, too.
  void keep_order(bool in_order) {
    in_order_ = in_order;
    done_.clear();
  }
  /// Says that op `index` of the program was the last that was given to the stream of its lane.
  void mark_done(int index, program::Lane lane);
  /// What is submitted to stream() from here on waits for that op and for what its lane had before it.
  void wait_for(int index) const;
  /// So many are taken by collectives of few blocks, where these run beside products.
  void spare_multiprocessors(int count) { spared_ = count; }
  /// How many multiprocessors products are to take in what is recorded now; 0: all.
  [[nodiscard]] int multiprocessors_of_products() const;
  [[nodiscard]] cudaMemPool_t pool() const { return pool_.get(); }
  [[nodiscard]] GemmPlans& products() const { return *products_; }

  [[nodiscard]] DeviceMemory allocate(std::size_t bytes) const { return {pool(), stream(), bytes}; }
  /// Working memory of at least `bytes`, reserved while a kernel is made and used by all kernels one after
  /// another. A block that was given out stays valid: recordings keep its address.
  [[nodiscard]] void* scratch(std::size_t bytes);
  /// Made on first use; all layers share one.
  std::shared_ptr<const RopeTables> rope_tables(std::int64_t seq, std::int64_t head_dim, double theta,
                                                const TokenPlaces& places = {});
  /// cuDNN for attention, looked for on first use.
  CudnnAttention& cudnn();
  [[nodiscard]] IdGuard& ids() const { return *ids_; }
  [[nodiscard]] Progress& progress() const { return *progress_; }
  [[nodiscard]] StreamGate& gate() const { return *gate_; }
  /// Copies in stream order; the host's memory may be used again when they return. Small ones to the device
  /// are not waited for.
  void copy_in(void* device, const void* host, std::size_t bytes) const;
  void copy_out(void* host, const void* device, std::size_t bytes) const;
  /// Called again and again, with the seconds waited so far, while the host waits for the device: what it
  /// throws ends that.
  void set_watch(std::function<void(double waited_s)> watch) { watch_ = std::move(watch); }
  /// Waits for everything submitted. Throws core::Unavailable, naming the op, when a kernel failed, and
  /// core::InputError when one met an id that is not in the vocabulary.
  void synchronize() const;
  /// Whether what is submitted is recorded and not run.
  [[nodiscard]] bool is_recording() const;
  /// Throws as `synchronize` when a kernel failed; does not wait.
  void throw_fault() const;
  /// A stream that waits for what was submitted to the first so far, for marks beside recorded work;
  /// `join_branches` makes the first wait for those that were used, and for messages.
  cudaStream_t branch(Branch which);
  void join_branches();
  /// Makes this device, and the launchers for it, the calling thread's.
  void select() const;

 private:
  using RopeKey = std::tuple<std::int64_t, std::int64_t, double, std::int64_t, std::int64_t>;
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
  std::map<int, EventHandle> done_;  ///< by op, of other lanes
  bool in_order_ = false;
  int spared_ = 0;
  struct Marks {
    StreamHandle stream;
    bool is_used = false;
  };
  std::array<Marks, 2> branches_;           ///< by Branch
  std::map<std::int64_t, Marks> messages_;  ///< by channel; is_used: in the recording at hand
  EventHandle marked_;                      ///< between the stream and those of the marks
  PoolHandle pool_;
  std::vector<DeviceMemory> scratch_;  ///< the last one is the largest
  std::map<RopeKey, std::shared_ptr<const RopeTables>> rope_tables_;
  std::unique_ptr<GemmPlans> products_;
  std::unique_ptr<CudnnAttention> cudnn_;
  std::unique_ptr<IdGuard> ids_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<StreamGate> gate_;
  std::function<void(double)> watch_;
};

}  // namespace rooflm::backends::cuda
