// How tensors are given to NCCL.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/cuda/nccl_groups.h"
#include "core/error.h"

namespace rooflm::backends::cuda {

inline nccl::DataType type_of(core::DType dtype) {
  switch (dtype) {
    case core::DType::f64:
      return nccl::kFloat64;
    case core::DType::f32:
      return nccl::kFloat32;
    case core::DType::bf16:
      return nccl::kBfloat16;
    case core::DType::f16:
      return nccl::kFloat16;
    default:
      throw core::Unavailable(fmt::format("NCCL adds up no {}", core::name_of(dtype)));
  }
}

inline std::size_t bytes_of(const DeviceTransfer& t, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * core::size_of(t.dtype);
}

inline program::Part part_of(const DeviceTransfer& t, int ranks, int index) {
  return program::part_of(t.elements, ranks, index, t.unit);
}

/// Whether all ranks have as many elements, as NCCL's own splitting wants it.
inline bool is_even(const DeviceTransfer& t, int ranks) {
  return t.elements % ranks == 0 && part_of(t, ranks, 0).size() == t.elements / ranks;
}

inline const std::byte* at(const DeviceTransfer& t, const void* from, std::int64_t element) {
  return static_cast<const std::byte*>(from) + bytes_of(t, element);
}

inline std::size_t count_of(std::int64_t elements) { return static_cast<std::size_t>(elements); }

/// Several calls that NCCL runs as one.
class Grouped {
 public:
  explicit Grouped(const NcclLibrary& library) : library_(&library) {
    library_->check(library_->group_start(), "beginning a group");
  }
  Grouped(const Grouped&) = delete;
  Grouped& operator=(const Grouped&) = delete;
  ~Grouped() {
    if (!has_ended_) static_cast<void>(library_->group_end());
  }
  void end(std::string_view what) {
    has_ended_ = true;
    library_->check(library_->group_end(), what);
  }

 private:
  const NcclLibrary* library_;
  bool has_ended_ = false;
};

}  // namespace rooflm::backends::cuda
