// The device interface of engines: memory, and a kernel for each op from an ordered table.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/collective_way.h"
#include "program/program.h"

namespace rooflm::backends {

/// Operand addresses of one execution, in the op's order, element offsets applied; nullptr for
/// program::kNone.
struct KernelArgs {
  std::span<void* const> in;
  std::span<void* const> out;
};

/// The kernel that runs, as far as it is known when it is made.
struct KernelInfo {
  std::string name{};  ///< as its library or our code names it: "adamw<fp32>", "brg:avx512_core_bf16"
  std::string library = "rooflm";    ///< "rooflm", "Eigen 3.4.0", "oneDNN 2.6.3", "cuBLASLt 13.0.2", ..
  std::string variant{};             ///< details that the name omits: tile, stages, extents of a matmul
  std::int64_t workspace_bytes = 0;  ///< scratch memory of one execution, in addition to its operands
  std::optional<std::int64_t> launches = 1;  ///< device launches per execution; nullopt: unknown
};

/// Runs one op. Made once per op of a program, so everything expensive (choosing a variant, creating a
/// primitive) happens before the first step. An output may share storage with the input
/// OpDef::in_place_input. On asynchronous devices it only submits.
struct Kernel {
  Kernel() = default;
  /// A function is a kernel; the table row that makes it may fill in `info` (op_view.h).
  template <class Run>
  requires(!std::same_as<std::remove_cvref_t<Run>, Kernel> && std::invocable<Run&, const KernelArgs&>)
      Kernel(Run runs, KernelInfo what = {})
      : run(std::move(runs)), info(std::move(what)) {}  // NOLINT: implicit

  explicit operator bool() const { return run != nullptr; }
  void operator()(const KernelArgs& args) const { run(args); }

  std::function<void(const KernelArgs&)> run;
  KernelInfo info;
};

/// One row of a backend's kernel table. `make` returns an empty Kernel if the row does not support the op's
/// dtypes or variant; then the next row for the same op is tried. The reference kernel comes last.
struct KernelRow {
  const program::OpDef* op;
  std::function<Kernel(const program::Program&, const program::Op&)> make;
};

/// Timestamps in the order of submission.
class Stopwatch {
 public:
  Stopwatch() = default;
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  virtual ~Stopwatch() = default;
  /// Takes the time when everything submitted so far has run.
  virtual void mark(std::size_t index) = 0;
  /// The same; in a recording the timestamp is taken on a side branch, so the work does not wait for it.
  virtual void mark_aside(std::size_t index) { mark(index); }
  /// Whether the device takes the timestamps, by its own clock and asynchronously, so earlier work delays
  /// them.
  [[nodiscard]] virtual bool is_on_device() const { return false; }
  /// Seconds between two marks that were taken. Call it after Backend::synchronize.
  [[nodiscard]] virtual double elapsed_s(std::size_t from, std::size_t to) const = 0;
};

/// One node of a recording (a kernel, a copy, a fill) and the op that submitted it.
struct NodeOp {
  std::uint64_t node = 0;           ///< CUDA: the cudaGraphNode_t; cuptiGetGraphNodeId gives its CUPTI id
  std::optional<std::size_t> op{};  ///< index in the program; nullopt: the backend's own bookkeeping
  std::size_t part = 0;             ///< index of its graph, if a replay launches several in a row
};

/// What may overlap in a recording. `none`: kernels run one after another, so that each can be timed.
/// `lanes`: ops of other lanes. `starts`: a kernel may also start while the one before it in its lane ends,
/// and read weights ahead; for steps that write none.
enum class Overlap : std::uint8_t { none, lanes, starts };

/// Recorded work that can be submitted again as a whole (a CUDA graph).
class Recording {
 public:
  Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  virtual ~Recording() = default;
  /// Submits all of the work; returns before it has run. Calls `may_begin` once, as soon as so much is
  /// submitted that a device that begins then never runs out of work.
  virtual void replay(const std::function<void()>& may_begin) = 0;
  /// All nodes except timestamps; valid as long as the recording. Empty if the device cannot list them.
  [[nodiscard]] virtual std::span<const NodeOp> nodes() const { return {}; }
};

/// While this exists, the device does not begin what is submitted, so the host's submission time does not
/// count in the device's. Destroying it releases the device.
class Hold {
 public:
  Hold() = default;
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  virtual ~Hold() = default;
  /// Lets the device begin. Returns false if it had already begun: a hold expires if submission takes too
  /// long, as it does when the device's queue is full.
  virtual bool release() = 0;
};

/// A device and its kernels. Virtual functions concern memory and time, never single ops.
class Backend {
 public:
  explicit Backend(std::vector<KernelRow> table) : table_(std::move(table)) {}
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// "cpu", "cuda:0", "null".
  [[nodiscard]] virtual std::string device() const = 0;
  /// Memory aligned to 64 bytes, contents undefined. Throws core::OutOfMemory. `allocate(0)` returns nullptr.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* data) noexcept = 0;
  /// The same for memory that collectives of data-parallel ranks access; if possible, the ranks map each
  /// other's memory. All such ranks must allocate and release in the same order. `layout` is a hash of what
  /// lies where in it: only ranks with equal hashes map each other's memory.
  [[nodiscard]] virtual void* allocate_shared(std::size_t bytes, std::uint64_t /*layout*/) {
    return allocate(bytes);
  }
  /// Copies between host and device memory, and fills. Host memory may be reused when they return.
  virtual void copy_in(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, std::size_t bytes) = 0;
  virtual void zero(void* device, std::size_t bytes) = 0;
  /// Waits for everything submitted.
  virtual void synchronize() = 0;
  /// A stopwatch with `marks` marks. The base class reads the host's clock, which is right for synchronous
  /// kernels.
  [[nodiscard]] virtual std::unique_ptr<Stopwatch> make_stopwatch(std::size_t marks) const;
  /// Submits one step: ops and marks, no copies to or from the host, no allocations. Calls the given function
  /// after each op, with the op's index.
  using SubmitStep = std::function<void(const std::function<void(std::size_t op)>& submitted)>;
  /// Records what `submit` submits, without running it. Returns nullptr, without calling `submit`, if the
  /// device cannot record.
  [[nodiscard]] virtual std::unique_ptr<Recording> record(const SubmitStep& submit, Overlap overlap);
  /// Holds back everything submitted from here on; nullptr if the device cannot.
  [[nodiscard]] virtual std::unique_ptr<Hold> hold() { return nullptr; }
  /// Bytes that an engine may still allocate.
  [[nodiscard]] virtual double free_bytes() const = 0;

  /// What the allocator behind `allocate` has given out, and what it holds for that; absent where nobody
  /// counts.
  struct AllocatorBytes {
    double given_out = 0, held = 0;
  };
  [[nodiscard]] virtual std::optional<AllocatorBytes> allocator_bytes() const { return std::nullopt; }

  /// Bytes that the backend holds for its kernels, in addition to what was allocated through it.
  [[nodiscard]] virtual std::int64_t workspace_bytes() const { return 0; }

  /// Adds kernels for ops that the table lacks: the collectives of one rank (backends/comm/).
  void add_kernels(std::vector<KernelRow> rows);
  /// Tells the backend in which ways these kernels can run collectives of data-parallel ranks; initially only
  /// CollectiveWay::usual. `set` selects the way for all that are submitted afterwards. `remark` is shown to
  /// the user.
  using SetWay = std::function<void(CollectiveWay way)>;
  void offer_collective_ways(std::vector<CollectiveWay> ways, SetWay set, std::string remark = {});
  [[nodiscard]] const std::vector<CollectiveWay>& collective_ways() const { return ways_; }
  [[nodiscard]] const std::string& remark_on_ways() const { return remark_on_ways_; }
  void set_collective_way(CollectiveWay way) const {
    if (set_way_) set_way_(way);
  }
  /// Adds kernels that take precedence over the table: for ops that are observed.
  void prefer_kernels(std::vector<KernelRow> rows);
  /// The first kernel of the table that supports `op`; a fused op without one runs as its plain ops. Throws
  /// core::Unavailable, naming op, dtypes and device, if there is no kernel.
  [[nodiscard]] Kernel make_kernel(const program::Program& program, const program::Op& op) const;
  /// The kernels of the plain ops that a fused op expands to (OpDef::plain), run in order; empty for plain
  /// ops. Throws as make_kernel.
  [[nodiscard]] Kernel make_plain_kernel(const program::Program& program, const program::Op& op) const;
  /// The kernel that would run each op of a program, in program order, without allocating its tensors. The
  /// name is empty if the op has no kernel or its kernel gets no scratch memory.
  [[nodiscard]] std::vector<KernelInfo> describe_kernels(const program::Program& program) const;

 private:
  std::vector<KernelRow> table_;
  std::vector<CollectiveWay> ways_ = {CollectiveWay::usual};
  SetWay set_way_;
  std::string remark_on_ways_;
};

/// Who accesses an allocation: this rank alone, or collectives too (Backend::allocate_shared).
enum class Reach : std::uint8_t { own, shared };

/// Owns one allocation of a backend, which must outlive it. Move-only.
class Allocation {
 public:
  Allocation() = default;
  Allocation(Backend& backend, std::size_t bytes, Reach reach = Reach::own, std::uint64_t layout = 0)
      : backend_(&backend),
        data_(reach == Reach::own ? backend.allocate(bytes) : backend.allocate_shared(bytes, layout)),
        bytes_(bytes) {}
  Allocation(Allocation&& other) noexcept { swap(other); }
  Allocation& operator=(Allocation&& other) noexcept {
    Allocation moved(std::move(other));
    swap(moved);
    return *this;
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation() {
    if (data_ != nullptr) backend_->release(data_);
  }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void swap(Allocation& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Backend* backend_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace rooflm::backends
