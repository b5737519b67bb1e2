// Flash attention through cuDNN: choice of plans and operand addresses.
#include "backends/cuda/cudnn_attention.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/check.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/cudnn_attention_graphs.h"
#include "backends/cuda/cudnn_graph.h"
#include "backends/cuda/cudnn_library.h"
#include "backends/cuda/handles.h"
#include "core/error.h"
#include "devices/cuda_attention.h"
#include "devices/cuda_workspaces.h"

namespace rooflm::backends::cuda {
namespace {

using core::DType;

constexpr std::size_t kAlignment = 256;

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

devices::AttentionSizes sizes_of(const AttentionShape& s) {
  return {.batch = s.batch, .seq = s.seq, .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim};
}

std::size_t score_bytes_of_group(const AttentionShape& s) {
  return static_cast<std::size_t>(devices::score_bytes_of_group(sizes_of(s)));
}

/// The largest part whose scores need at most `bytes`.
CudnnPart part_within(const AttentionShape& s, std::size_t bytes) {
  const devices::AttentionSizes part = devices::part_within(sizes_of(s), static_cast<std::int64_t>(bytes));
  return {part.batch, part.heads, part.kv_heads};
}

/// Offsets of the operands of one head.
struct Place {
  std::int64_t batch = 0, kv_head = 0;
};

template <class Byte>
Byte* ahead(Byte* data, std::int64_t elements, std::size_t size) {
  return data + elements * static_cast<std::int64_t>(size);
}

/// Addresses in packed projections, from a place on.
struct PackedAddresses {
  std::byte *query, *key, *value;

  PackedAddresses(void* qkv, const AttentionShape& s, Place place, std::size_t size) {
    const std::int64_t row = (s.heads + 2 * s.kv_heads) * s.head_dim;
    auto* base = ahead(static_cast<std::byte*>(qkv), place.batch * s.seq * row, size);
    query = ahead(base, place.kv_head * (s.heads / s.kv_heads) * s.head_dim, size);
    key = ahead(base, (s.heads + place.kv_head) * s.head_dim, size);
    value = ahead(base, (s.heads + s.kv_heads + place.kv_head) * s.head_dim, size);
  }
};

/// cuDNN's interface has no const pointers.
void* mutable_address(const void* data) { return const_cast<void*>(data); }  // NOLINT: inputs are only read

bool is_taken(const AttentionShape& s, DType dtype) {
  return devices::fits_cudnn_attention(dtype, sizes_of(s));
}

cudnnDataType_t type_of(DType dtype) { return dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF; }

}  // namespace

class CudnnAttention::Library {
 public:
  Library(int index, cudaStream_t stream)
      : functions(CudnnLibrary::load()), handle(functions, stream), device(cudnn_device(functions, index)) {}
  CudnnLibrary functions;
  CudnnHandle handle;
  CudnnDescriptor device;
};

CudnnAttention::CudnnAttention(int device, cudaStream_t stream) {
  try {
    library_ = std::make_unique<const Library>(device, stream);
  } catch (const core::Unavailable&) {
    library_ = nullptr;  // query_cudnn reports the reason
  }
}

CudnnAttention::~CudnnAttention() = default;

CudnnAttention::Key CudnnAttention::key(const AttentionShape& s, DType dtype) {
  return {s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, s.rules.window, s.rules.scale, dtype};
}

const CudnnForward& CudnnAttention::forward(const AttentionShape& s, DType dtype) {
  const auto [found, is_new] = forwards_.try_emplace(key(s, dtype));
  if (!is_new || library_ == nullptr || !is_taken(s, dtype)) return found->second;
  try {
    auto f =
        std::make_shared<const CudnnForwardPlan>(library_->functions, library_->device, s, type_of(dtype));
    const std::size_t size = core::size_of(dtype);
    // NOLINTNEXTLINE(readability-non-const-parameter): lse is written, through a binding
    const auto submit = [=, library = library_.get()](const void* qkv, void* y, float* lse, void* workspace) {
      const PackedAddresses from(mutable_address(qkv), s, {}, size);
      const std::array<CudnnPlan::Binding, 5> bindings = {
          {{f->q, from.query}, {f->k, from.key}, {f->v, from.value}, {f->y, y}, {f->lse, lse}}};
      f->plan->submit(library->handle.get(), bindings, workspace);
    };
    found->second = {
        .engine = f->plan->engine(), .workspace_bytes = f->plan->workspace_bytes(), .submit = submit};
  } catch (const core::Unavailable&) {
    found->second = {};  // no engine supports it
  }
  return found->second;
}

namespace {

/// A number in device memory, once for each batch element.
class DeviceCounts {
 public:
  /// Throws core::OutOfMemory, core::Unavailable.
  DeviceCounts(std::int64_t count, std::int64_t value) {
    const std::vector<std::int32_t> values(static_cast<std::size_t>(count), static_cast<std::int32_t>(value));
    const std::size_t bytes = values.size() * sizeof(std::int32_t);
    void* data = nullptr;
    check_allocation(cudaMalloc(&data, bytes), bytes);
    data_.reset(data);
    check(cudaMemcpy(data, values.data(), bytes, cudaMemcpyHostToDevice), "copying to the device");
  }
  [[nodiscard]] void* data() const { return data_.get(); }

 private:
  std::unique_ptr<void, Destroy<cudaFree>> data_;
};

/// Runs a gradient's plan for one part after another.
class GradientRun {
 public:
  GradientRun(const CudnnLibrary& library, const CudnnDescriptor& device, const AttentionShape& s,
              DType dtype, GradientOrder order)
      : shape_(s),
        part_(order.deterministic ? part_within(s, order.score_bytes)
                                  : CudnnPart{s.batch, s.heads, s.kv_heads}),
        size_(core::size_of(dtype)),
        plan_(library, device, s, part_, type_of(dtype), order.deterministic) {
    const auto rows = static_cast<std::size_t>(part_.batch * part_.heads * s.seq);
    delta_bytes_ = aligned(rows * sizeof(float));
    const std::size_t row_bytes = static_cast<std::size_t>(s.head_dim) * sizeof(float);
    sums_bytes_ = order.deterministic ? 0 : aligned(rows * row_bytes);
    if (plan_.lengths) lengths_.emplace(part_.batch, s.seq);
  }

  [[nodiscard]] std::size_t workspace_bytes() const {
    return delta_bytes_ + sums_bytes_ + plan_.plan->workspace_bytes();
  }

  [[nodiscard]] const std::string& engine() const { return plan_.plan->engine(); }

  void submit(cudnnHandle_t handle, const void* dy, const void* qkv, const void* y, const float* lse,
              void* dqkv, void* workspace) const {
    const AttentionShape& s = shape_;
    auto* delta = static_cast<std::byte*>(workspace);
    auto* sums = delta + delta_bytes_;
    for (Place at; at.batch < s.batch; at.batch += part_.batch) {
      for (at.kv_head = 0; at.kv_head < s.kv_heads; at.kv_head += part_.kv_heads) {
        const std::int64_t head = at.kv_head * (s.heads / s.kv_heads);
        const std::int64_t out = (at.batch * s.seq * s.heads + head) * s.head_dim;
        const PackedAddresses from(mutable_address(qkv), s, at, size_);
        const PackedAddresses to(dqkv, s, at, size_);
        std::vector<CudnnPlan::Binding> bindings = {
            {plan_.q, from.query},
            {plan_.k, from.key},
            {plan_.v, from.value},
            {plan_.y, ahead(static_cast<std::byte*>(mutable_address(y)), out, size_)},
            {plan_.dy, ahead(static_cast<std::byte*>(mutable_address(dy)), out, size_)},
            {plan_.lse, mutable_address(lse + (at.batch * s.heads + head) * s.seq)},
            {plan_.dq, to.query},
            {plan_.dk, to.key},
            {plan_.dv, to.value},
            {plan_.delta, delta}};
        if (!plan_.deterministic) bindings.push_back({plan_.sums, sums});
        if (plan_.lengths) {
          bindings.push_back({plan_.lengths->query, lengths_->data()});
          bindings.push_back({plan_.lengths->key, lengths_->data()});
        }
        plan_.plan->submit(handle, bindings, sums + sums_bytes_);
      }
    }
  }

 private:
  AttentionShape shape_;
  CudnnPart part_;
  std::size_t size_;
  CudnnGradientPlan plan_;
  std::size_t delta_bytes_ = 0, sums_bytes_ = 0;
  std::optional<DeviceCounts> lengths_;
};

}  // namespace

const CudnnGradient& CudnnAttention::gradient(const AttentionShape& s, DType dtype, GradientOrder order) {
  const auto [found, is_new] =
      gradients_.try_emplace({key(s, dtype), order.deterministic, order.score_bytes});
  if (!is_new || library_ == nullptr || !is_taken(s, dtype)) return found->second;
  if (order.deterministic && score_bytes_of_group(s) > order.score_bytes) {
    return found->second;
  }
  try {
    auto run = std::make_shared<const GradientRun>(library_->functions, library_->device, s, dtype, order);
    found->second = {
        .engine = run->engine(),
        .workspace_bytes = run->workspace_bytes(),
        .submit = [run, library = library_.get()](const void* dy, const void* qkv, const void* y,
                                                  const float* lse, void* dqkv, void* workspace) {
          run->submit(library->handle.get(), dy, qkv, y, lse, dqkv, workspace);
        }};
  } catch (const core::Unavailable&) {
    found->second = {};  // no engine supports it
  }
  return found->second;
}

CudnnStatus query_cudnn() {
  try {
    return {.version = CudnnLibrary::load().version_text(), .reason = {}};
  } catch (const core::Unavailable& error) {
    return {.version = {}, .reason = error.what()};
  }
}

}  // namespace rooflm::backends::cuda
