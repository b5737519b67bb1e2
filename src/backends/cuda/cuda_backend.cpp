// NVIDIA GPUs as devices for engines.
#include "backends/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/cuda/check.h"
#include "backends/cuda/collectives/nccl_rows.h"
#include "backends/cuda/collectives/summing_updates.h"
#include "backends/cuda/context.h"
#include "backends/cuda/gemm.h"
#include "backends/cuda/recording.h"
#include "backends/cuda/rows/rows.h"
#include "backends/cuda/stream_hold.h"

namespace rooflm::backends::cuda {
namespace {

/// GPU memory of a process besides its pool: context, kernels, NCCL buffers.
constexpr double kOwnBytes = 1e9;

bool is_launch_blocking() {
  const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && std::string_view(value) == "1";
}

/// The op's index in its program, if it is one of its ops.
int index_of(const program::Program& program, const program::Op& op) {
  const std::less<> before;
  const program::Op* first = program.ops.data();
  const bool is_member = !before(&op, first) && before(&op, first + program.ops.size());
  return is_member ? static_cast<int>(&op - first) : -1;
}

/// Makes the kernel wait for ops of other lanes (Op::waits), and name its op if it fails: at once if the
/// launch fails; if the kernel itself fails, only in its first run, or always if launches are blocking.
Kernel with_check(Kernel kernel, const program::Program& program, const program::Op& op,
                  const std::shared_ptr<Context>& context) {
  if (!kernel) return kernel;
  const std::string name = fmt::format("{} in {}", op.def->name, op.scope);
  const auto run = [kernel = std::move(kernel.run), name, context, number = context->progress().add(name),
                    is_always_marked = is_launch_blocking(), was_marked = false, waits = op.waits,
                    lane = op.lane, index = index_of(program, op)](const KernelArgs& args) mutable {
    context->select();
    for (const int wait : waits) context->wait_for(wait);
    if (context->is_recording()) {
      if (number % Progress::kSpacing == 1)
        context->progress().pass(context->branch(Branch::progress), number);
    } else if (!was_marked || is_always_marked) {
      context->progress().begin(context->stream(), number);
      was_marked = true;
    }
    try {
      kernel(args);
      check(cudaGetLastError(), name);
      if (lane != program::Lane::compute) context->mark_done(index, lane);
    } catch (const std::exception&) {
      context->throw_fault();  // the fault may be an earlier op's
      throw;
    }
  };
  return {run, std::move(kernel.info)};
}

std::vector<KernelRow> table(const std::shared_ptr<Context>& context) {
  std::vector<KernelRow> rows;
  for (const MakerRow& row : kernels()) {
    rows.push_back({row.op, [row, context](const program::Program& program, const program::Op& op) {
                      if (!program::processors_only(op).empty()) return Kernel{};
                      context->select();
                      return with_check(make_named(row, {program, op, context}), program, op, context);
                    }});
  }
  return rows;
}

std::uint64_t pool_bytes(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
  std::uint64_t bytes = 0;
  check(cudaMemPoolGetAttribute(pool, attribute, &bytes), "asking a memory pool");
  return bytes;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(std::shared_ptr<Context> context)
      : Backend(table(context)), context_(std::move(context)) {}

  [[nodiscard]] std::string device() const override { return fmt::format("cuda:{}", context_->index()); }

  [[nodiscard]] void* allocate(std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    DeviceMemory memory = here().allocate(bytes);
    void* data = memory.data();
    allocated_bytes_ += bytes;
    memory_.emplace(data, std::move(memory));
    return data;
  }
  [[nodiscard]] void* allocate_shared(std::size_t bytes, std::uint64_t layout) override {
    if (groups_ == nullptr || groups_->memory() == nullptr) return allocate(bytes);
    context_->select();
    return groups_->memory()->allocate(bytes, layout);
  }
  void release(void* data) noexcept override {
    if (groups_ != nullptr && groups_->memory() != nullptr && groups_->memory()->release(data)) return;
    const auto found = memory_.find(data);
    if (found == memory_.end()) return;
    allocated_bytes_ -= found->second.bytes();
    memory_.erase(found);
  }

  void copy_in(void* device, const void* host, std::size_t bytes) override {
    here().copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, std::size_t bytes) override {
    here().copy_out(host, device, bytes);
  }
  void zero(void* device, std::size_t bytes) override {
    if (bytes > 0) check(cudaMemsetAsync(device, 0, bytes, here().stream()), "zeroing memory");
    here().synchronize();
  }
  void synchronize() override { here().synchronize(); }

  [[nodiscard]] std::unique_ptr<Stopwatch> make_stopwatch(std::size_t marks) const override {
    context_->select();
    return std::make_unique<EventStopwatch>(context_, marks);
  }
  [[nodiscard]] std::unique_ptr<Recording> record(const SubmitStep& submit, Overlap overlap) override {
    if (is_launch_blocking()) return nullptr;
    context_->select();
    return std::make_unique<GraphRecording>(context_, submit, overlap);
  }

  [[nodiscard]] std::unique_ptr<Hold> hold() override {
    context_->select();
    return StreamHold::begin(context_);
  }

  /// The driver's free memory plus the pool's unused memory; on a shared GPU at most what is left of an equal
  /// share.
  [[nodiscard]] double free_bytes() const override {
    context_->select();
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for free memory");
    const auto reserved = pool_bytes(context_->pool(), cudaMemPoolAttrReservedMemCurrent);
    const auto used = pool_bytes(context_->pool(), cudaMemPoolAttrUsedMemCurrent);
    const double unused =
        static_cast<double>(free) + static_cast<double>(reserved) - static_cast<double>(used);
    const int sharers = context_->options().sharers;
    if (sharers <= 1) return unused;
    const double left = static_cast<double>(total) / sharers - static_cast<double>(used) - kOwnBytes;
    return std::clamp(left, 0.0, unused);
  }

  [[nodiscard]] std::optional<AllocatorBytes> allocator_bytes() const override {
    context_->select();
    const auto of_pool = [this](cudaMemPoolAttr what) {
      return static_cast<double>(pool_bytes(context_->pool(), what));
    };
    return AllocatorBytes{.given_out = of_pool(cudaMemPoolAttrUsedMemCurrent),
                          .held = of_pool(cudaMemPoolAttrReservedMemCurrent)};
  }

  /// Adds the collectives to the kernel table.
  void join(const std::shared_ptr<ranks::Transport>& transport, const program::Mesh& mesh,
            CollectiveWish wish) {
    groups_ = NcclGroups::join(context_, transport, mesh, wish);
    offer_collective_ways(
        groups_->ways(), [groups = groups_](CollectiveWay way) { groups->set_way(way); }, groups_->remark());
    add_kernels(checked(nccl_rows(groups_)));
    prefer_kernels(checked(summing_updates(context_, groups_)));
  }

  /// Rows whose kernels say which op failed.
  [[nodiscard]] std::vector<KernelRow> checked(std::vector<KernelRow> rows) const {
    for (KernelRow& row : rows) {
      row.make = [make = std::move(row.make), context = context_](const program::Program& program,
                                                                  const program::Op& op) {
        context->select();
        Kernel kernel = make(program, op);
        return kernel ? with_check(std::move(kernel), program, op, context) : kernel;
      };
    }
    return rows;
  }

  [[nodiscard]] GemmChoices gemm_choices() const {
    GemmChoices choices = context_->gemm_plans().choices();
    choices.text = context_->gemm_plans().cache().text();
    choices.damaged = context_->gemm_plans().cache().damaged().string();
    return choices;
  }

  [[nodiscard]] std::int64_t workspace_bytes() const override {
    const auto used = pool_bytes(context_->pool(), cudaMemPoolAttrUsedMemCurrent);
    return static_cast<std::int64_t>(used) - static_cast<std::int64_t>(allocated_bytes_);
  }

 private:
  /// The context, with its device current for the calling thread: other code may have selected another GPU
  /// meanwhile.
  [[nodiscard]] Context& here() const {
    context_->select();
    return *context_;
  }

  std::shared_ptr<Context> context_;
  std::shared_ptr<NcclGroups> groups_;  ///< of a backend that has joined
  std::unordered_map<void*, DeviceMemory> memory_;
  std::size_t allocated_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int index, const CudaOptions& options) {
  return std::make_unique<CudaBackend>(std::make_shared<Context>(index, options));
}

void join_ranks(Backend& backend, const std::shared_ptr<ranks::Transport>& transport,
                const program::Mesh& mesh, CollectiveWish wish) {
  auto* gpu = dynamic_cast<CudaBackend*>(&backend);
  if (gpu == nullptr) throw std::logic_error("ranks of GPUs are joined on a GPU");
  gpu->join(transport, mesh, wish);
}

std::string nccl_version() { return nccl_library().version_text(); }

GemmChoices gemm_choices(const Backend& backend) {
  const auto* gpu = dynamic_cast<const CudaBackend*>(&backend);
  return gpu == nullptr ? GemmChoices{} : gpu->gemm_choices();
}

}  // namespace rooflm::backends::cuda
