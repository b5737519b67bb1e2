// What an engine needs of a device: memory, and for each op a kernel from an ordered table.
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

/// Operands of one execution, in the op's order, element offsets already applied; nullptr for program::kNone.
struct KernelArgs {
  std::span<void* const> in;
  std::span<void* const> out;
};

/// What really runs, as far as it is known when the kernel is made.
struct KernelInfo {
  std::string name{};  ///< as its library or our code calls it: "adamw<fp32>", "brg:avx512_core_bf16"
  std::string library = "rooflm";    ///< "rooflm", "Eigen 3.4.0", "oneDNN 2.6.3", "cuBLASLt 13.0.2", ..
  std::string variant{};             ///< what the name leaves open: tile, stages, extents of a matmul
  std::int64_t workspace_bytes = 0;  ///< scratch memory that one execution uses, beside its operands
  std::optional<std::int64_t> launches = 1;  ///< of the device in one execution; nullopt: not known
};

/// Runs one op. Made once per op of a program, so that anything expensive (choosing a variant, creating a
/// primitive) happens before the first step. An output may share its storage with the input that
/// OpDef::in_place_input names. Asynchronous devices only submit.
struct Kernel {
  Kernel() = default;
  /// A function is a kernel; `info` may be left to the row of the table that makes it (op_view.h).
  template <class Run>
  requires(!std::same_as<std::remove_cvref_t<Run>, Kernel> && std::invocable<Run&, const KernelArgs&>)
      Kernel(Run runs, KernelInfo what = {})
      : run(std::move(runs)), info(std::move(what)) {}  // NOLINT: implicit

  explicit operator bool() const { return run != nullptr; }
  void operator()(const KernelArgs& args) const { run(args); }

  std::function<void(const KernelArgs&)> run;
  KernelInfo info;
};

/// One row of a backend's kernel table. `make` returns an empty Kernel when this row does not handle the op's
/// dtypes or variant; the next row for the same op is asked then. The reference kernel comes last.
struct KernelRow {
  const program::OpDef* op;
  std::function<Kernel(const program::Program&, const program::Op&)> make;
};

/// Marks of time in what a device was given to do.
class Stopwatch {
 public:
  Stopwatch() = default;
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  virtual ~Stopwatch() = default;
  /// Takes the time when everything submitted so far has run.
  virtual void mark(std::size_t index) = 0;
  /// As `mark`; inside a recording taken beside the work, which does not wait for it.
  virtual void mark_aside(std::size_t index) { mark(index); }
  /// Whether a device takes the marks, by its own clock and when it gets there: other work may come before.
  [[nodiscard]] virtual bool is_on_device() const { return false; }
  /// Seconds between two marks that were taken; call it after Backend::synchronize.
  [[nodiscard]] virtual double elapsed_s(std::size_t from, std::size_t to) const = 0;
};

/// One piece of work in a recording (a kernel, a copy, a fill) and the op that submitted it.
struct NodeOp {
  std::uint64_t node = 0;  ///< CUDA: the cudaGraphNode_t, of which CUPTI tells its id (cuptiGetGraphNodeId)
  std::optional<std::size_t> op{};  ///< in the program; nullopt: a mark of the backend's own
  std::size_t part = 0;  ///< which graph it is of, where a replay submits several, one after the other
};

/// Submitted work that a device keeps and can be given again at once.
class Recording {
 public:
  Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  virtual ~Recording() = default;
  /// Submits all of it; returns before it has run. Calls `may_begin` once, when so much is submitted that a
  /// device which begins then gets the rest in time.
  virtual void replay(const std::function<void()>& may_begin) = 0;
  /// All its work but marks of time; valid as long as the recording. Empty where a device knows none.
  [[nodiscard]] virtual std::span<const NodeOp> nodes() const { return {}; }
};

/// Keeps a device from beginning what is submitted while this exists, so that the host's time to submit it is
/// not in the device's. Destroying it releases it.
class Hold {
 public:
  Hold() = default;
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  virtual ~Hold() = default;
  /// Lets the device begin. False when it had begun before: a hold gives way by itself where submitting takes
  /// too long, as it does when a queue is full that only the device empties.
  virtual bool release() = 0;
};

/// A device and its kernels. The virtuals are about memory and time, never about single ops.
class Backend {
 public:
  explicit Backend(std::vector<KernelRow> table) : table_(std::move(table)) {}
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// "cpu", "cuda:0", "null".
  [[nodiscard]] virtual std::string device() const = 0;
  /// Bytes aligned to 64, contents undefined. Throws core::OutOfMemory. `allocate(0)` returns nullptr.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* data) noexcept = 0;
  /// As `allocate`, of memory that collectives of data-parallel ranks read and write: where these can reach
  /// into each other's, they do. Of such ranks all call it in the same order, and release likewise. `layout`
  /// stands for what lies where in it: only ranks for which that is the same reach into each other's.
  [[nodiscard]] virtual void* allocate_shared(std::size_t bytes, std::uint64_t /*layout*/) {
    return allocate(bytes);
  }
  /// Copies and fills between host memory, which may be used again when they return, and this device's
  /// memory.
  virtual void copy_in(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, std::size_t bytes) = 0;
  virtual void zero(void* device, std::size_t bytes) = 0;
  /// Waits for everything submitted.
  virtual void synchronize() = 0;
  /// A stopwatch for `marks` marks; the base class reads the host's clock, which is right for devices whose
  /// kernels return when they are done.
  [[nodiscard]] virtual std::unique_ptr<Stopwatch> make_stopwatch(std::size_t marks) const;
  /// What is submitted while a step is recorded: ops and marks; no copies to or from the host, no
  /// allocations. It calls the given function after each op, with the op's index.
  using SubmitStep = std::function<void(const std::function<void(std::size_t op)>& submitted)>;
  /// What `submit` gives to the device, recorded, not run. nullptr when the device records nothing: `submit`
  /// was not called then. `in_order`: ops that may run beside others do not, so that each can be timed.
  [[nodiscard]] virtual std::unique_ptr<Recording> record(const SubmitStep& submit, bool in_order);
  /// Holds back what is submitted from here on; nullptr where the device cannot.
  [[nodiscard]] virtual std::unique_ptr<Hold> hold() { return nullptr; }
  /// Memory that an engine may still take, in bytes.
  [[nodiscard]] virtual double free_bytes() const = 0;

  /// Bytes that the backend itself holds for its kernels, beside what was allocated through it.
  [[nodiscard]] virtual std::int64_t workspace_bytes() const { return 0; }

  /// Kernels for ops that the table has none for: the collectives of one rank (backends/comm/).
  void add_kernels(std::vector<KernelRow> rows);
  /// The ways in which these can carry out collectives of data-parallel ranks, at first CollectiveWay::usual
  /// alone; `set` has all that are submitted after it in that way. `remark`: what the user is told of it.
  using SetWay = std::function<void(CollectiveWay way)>;
  void offer_collective_ways(std::vector<CollectiveWay> ways, SetWay set, std::string remark = {});
  [[nodiscard]] const std::vector<CollectiveWay>& collective_ways() const { return ways_; }
  [[nodiscard]] const std::string& remark_on_ways() const { return remark_on_ways_; }
  void set_collective_way(CollectiveWay way) const {
    if (set_way_) set_way_(way);
  }
  /// Kernels that are asked for before those of the table: of ops that somebody watches.
  void prefer_kernels(std::vector<KernelRow> rows);
  /// The first kernel of the table that handles `op`. A fused op without one runs as the plain ops that it
  /// equals. core::Unavailable names the op, its dtypes and the device when there is no kernel.
  [[nodiscard]] Kernel make_kernel(const program::Program& program, const program::Op& op) const;
  /// The kernels of the plain ops that a fused op equals (OpDef::plain), one after the other; empty for plain
  /// ops. Throws as make_kernel.
  [[nodiscard]] Kernel make_plain_kernel(const program::Program& program, const program::Op& op) const;
  /// What would run each op of a program, in its order; nothing is allocated for its tensors. An op that has
  /// no kernel here, or whose kernel finds no scratch memory, has an empty name.
  [[nodiscard]] std::vector<KernelInfo> describe_kernels(const program::Program& program) const;

 private:
  std::vector<KernelRow> table_;
  std::vector<CollectiveWay> ways_ = {CollectiveWay::usual};
  SetWay set_way_;
  std::string remark_on_ways_;
};

/// Whose memory it is: this rank's alone, or one that collectives use (Backend::allocate_shared).
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
