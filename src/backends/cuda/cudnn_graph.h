// A graph of operations that cuDNN compiles into kernels, built from values, and its plan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/cuda/cudnn_library.h"

namespace rooflm::backends::cuda {

/// An object of cuDNN's graph API: created, given attributes, finalized. Move-only.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : library_(other.library_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;
  ~CudnnDescriptor() {
    if (descriptor_ != nullptr) static_cast<void>(library_->destroy_descriptor(descriptor_));
  }

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
    set(name, CUDNN_TYPE_INT64, values.size(), values.data());
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
           const void* values);
  /// Throws core::Unavailable "cuDNN: DOING: why" if cuDNN rejects it.
  void finalize(std::string_view doing);
  [[nodiscard]] cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  const CudnnLibrary* library_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// The device that plans are made for.
CudnnDescriptor cudnn_device(const CudnnLibrary& library, int index);

using CudnnExtents = std::array<std::int64_t, 4>;

/// A value of a graph.
struct CudnnValue {
  std::size_t index = 0;  ///< index in the graph
};

/// A compiled graph.
class CudnnPlan {
 public:
  /// The address of a value in device memory.
  struct Binding {
    CudnnValue value;
    void* data = nullptr;
  };
  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }
  /// The engine that runs it, "cudnn engine 4"; numbers belong to a cuDNN version.
  [[nodiscard]] const std::string& engine() const { return engine_; }
  /// Only submits. `workspace` has workspace_bytes bytes.
  void submit(cudnnHandle_t handle, std::span<const Binding> bindings, void* workspace) const;

 private:
  friend class CudnnGraph;
  CudnnPlan(const CudnnLibrary& library, CudnnDescriptor plan);
  const CudnnLibrary* library_;
  CudnnDescriptor plan_;
  std::size_t workspace_bytes_ = 0;
  std::string engine_;
  std::vector<std::int64_t> scalar_ids_;
  std::deque<float> scalars_;
};

/// Collects operations on values [batch, head, row, column]; sums and functions are fp32. `library` must
/// outlive it.
class CudnnGraph {
 public:
  explicit CudnnGraph(const CudnnLibrary& library) : library_(&library) {}

  static constexpr std::int64_t kAlignment = 16;
  /// A value in device memory, aligned to so many bytes.
  CudnnValue in_memory(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides,
                       std::int64_t alignment = kAlignment);
  /// An intermediate value; dense unless strides are given.
  CudnnValue between(cudnnDataType_t type, const CudnnExtents& extents);
  CudnnValue between(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides);
  CudnnValue constant(float number);

  /// An extent of a matmul [m, k] [k, n] of which only the first `length` count, int32 of each batch element.
  struct Length {
    cudnnBackendAttributeName_t extent;  ///< CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, N or K
    CudnnValue length;
  };
  /// c = a b.
  void matmul(CudnnValue a, CudnnValue b, CudnnValue c, std::span<const Length> lengths = {});
  /// y = f(x, b). For CUDNN_POINTWISE_BINARY_SELECT a third operand selects between x and b.
  void pointwise(cudnnPointwiseMode_t mode, std::initializer_list<CudnnValue> operands, CudnnValue y);
  /// The same with a new fp32 y that has the shape of the first operand.
  CudnnValue pointwise(cudnnPointwiseMode_t mode, std::initializer_list<CudnnValue> operands);
  /// The index along an axis of a value with the shape of x, int32.
  CudnnValue index(CudnnValue x, std::int64_t axis);
  /// y = reduction of x over the dimensions that have extent 1 in y.
  void reduce(cudnnReduceTensorOp_t operation, CudnnValue x, CudnnValue y);
  /// The same elements with other extents and strides.
  void reshape(CudnnValue x, CudnnValue y);

  [[nodiscard]] const CudnnExtents& extents(CudnnValue value) const {
    return values_.at(value.index).extents;
  }

  /// The first plan that cuDNN's heuristics propose and that compiles for `device`. Throws core::Unavailable
  /// if there is none.
  [[nodiscard]] CudnnPlan plan(const CudnnDescriptor& device) const;

 private:
  enum class Place : std::uint8_t { memory, between, host };
  struct Value {
    CudnnDescriptor descriptor;
    CudnnExtents extents;
  };
  CudnnValue add(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides, Place place,
                 std::int64_t alignment = kAlignment);
  [[nodiscard]] const CudnnDescriptor& at(CudnnValue value) const {
    return values_.at(value.index).descriptor;
  }
  CudnnDescriptor& add_operation(cudnnBackendDescriptorType_t type);
  CudnnDescriptor make_pointwise(cudnnPointwiseMode_t mode, std::int64_t axis) const;

  const CudnnLibrary* library_;
  std::vector<Value> values_;
  std::deque<CudnnDescriptor> operations_;
  std::vector<std::int64_t> scalar_ids_;
  std::deque<float> scalars_;
};

}  // namespace rooflm::backends::cuda
