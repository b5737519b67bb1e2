// Collectives by NCCL's own kernels.
#include "backends/cuda/collectives/collectives.h"

#include <fmt/format.h>

#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

using program::Part;

std::size_t count_of(std::int64_t elements) { return static_cast<std::size_t>(elements); }

}  // namespace

nccl::DataType type_of(core::DType dtype) {
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

void Collectives::all_reduce(const DeviceTransfers& whole, cudaStream_t stream) const {
  Grouped calls(library(), "all_reduce");
  for (const DeviceTransfer& t : whole)
    calls.add(library().all_reduce(t.from, t.to, count_of(t.elements), type_of(t.dtype), nccl::kSum,
                                   own().comm, stream));
  calls.end();
}

/// One call for parts of the same size, one for each rank's part otherwise.
template <class Even, class Uneven>
void Collectives::submit_parts(const DeviceTransfers& whole, const char* what, const Even& even,
                               const Uneven& uneven) const {
  Grouped calls(library(), what);
  for (const DeviceTransfer& t : whole) {
    if (t.is_even(own().ranks)) {
      calls.add(even(t, count_of(t.elements / own().ranks)));
      continue;
    }
    for (int root = 0; root < own().ranks; ++root) {
      const Part part = t.part_of(own().ranks, root);
      if (part.size() > 0) calls.add(uneven(t, part, count_of(part.size()), root));
    }
  }
  calls.end();
}

void Collectives::all_gather(const DeviceTransfers& whole, cudaStream_t stream) const {
  submit_parts(
      whole, "all_gather",
      [&](const DeviceTransfer& t, std::size_t count) {
        return library().all_gather(t.from, t.to, count, type_of(t.dtype), own().comm, stream);
      },
      [&](const DeviceTransfer& t, Part part, std::size_t count, int root) {
        std::byte* to = t.to_at(part.begin);
        return library().broadcast(root == own().index ? t.from : to, to, count, type_of(t.dtype), root,
                                   own().comm, stream);
      });
}

void Collectives::reduce_scatter(const DeviceTransfers& whole, cudaStream_t stream) const {
  submit_parts(
      whole, "reduce_scatter",
      [&](const DeviceTransfer& t, std::size_t count) {
        return library().reduce_scatter(t.from, t.to, count, type_of(t.dtype), nccl::kSum, own().comm,
                                        stream);
      },
      [&](const DeviceTransfer& t, Part part, std::size_t count, int root) {
        return library().reduce(t.from_at(part.begin), t.to, count, type_of(t.dtype), nccl::kSum, root,
                                own().comm, stream);
      });
}

void Collectives::pass_on(const DeviceTransfers& whole, cudaStream_t stream) const {
  const int ranks = own().ranks;
  Grouped calls(library(), "pass_on");
  for (const DeviceTransfer& t : whole) {
    const std::size_t bytes = t.bytes_of(t.elements);
    calls.add(library().send(t.from, bytes, nccl::kInt8, (own().index + 1) % ranks, own().comm, stream));
    calls.add(
        library().recv(t.to, bytes, nccl::kInt8, (own().index + ranks - 1) % ranks, own().comm, stream));
  }
  calls.end();
}

}  // namespace rooflm::backends::cuda
