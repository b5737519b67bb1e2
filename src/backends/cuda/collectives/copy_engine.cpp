// Collectives by copies without kernels.
#include "backends/cuda/collectives/copy_engine.h"

#include <algorithm>

#include "backends/cuda/kernels/elementwise.h"

namespace rooflm::backends::cuda {
namespace {

using program::Part;

/// Sums of so few are NCCL's own: a loss, a norm, which nobody splits.
constexpr std::int64_t kFewElements = 16;
/// What is received of each tensor begins at a multiple of that many bytes.
constexpr std::size_t kReceivedUnit = 512;

}  // namespace

/// Of all parts of one rank, from all ranks: of the one whose part is the largest, so that what is received
/// of a tensor begins at the same place on all ranks.
std::size_t CopyEngine::received_bytes(const DeviceTransfer& t) const {
  const int ranks = own().ranks;
  const std::size_t bytes = static_cast<std::size_t>(ranks) * t.bytes_of(t.most_elements(ranks));
  return (bytes + kReceivedUnit - 1) / kReceivedUnit * kReceivedUnit;
}

void CopyEngine::reserve(const DeviceTransfers& whole) {
  if (*memory_ == nullptr) return;
  std::size_t bytes = 0;
  for (const DeviceTransfer& t : whole) bytes += received_bytes(t);
  if (bytes <= received_bytes_) return;
  received_ = static_cast<std::byte*>((*memory_)->allocate(bytes, 0));  // recordings keep the one before
  received_bytes_ = bytes;
}

/// Each rank gets all ranks' values of its part, by copies, and adds them up.
void CopyEngine::add_up(const DeviceTransfers& whole, cudaStream_t stream, bool accumulate) const {
  Grouped calls(library(), "reduce_scatter by copies");
  std::byte* to = received_;
  for (const DeviceTransfer& t : whole) {
    if (t.is_even(own().ranks)) {
      const auto count = static_cast<std::size_t>(t.part_of(own().ranks, own().index).size());
      calls.add(library().all_to_all(t.from, to, count, type_of(t.dtype), own().comm, stream));
    } else {
      exchange(t, to, calls, stream);
    }
    to += received_bytes(t);
  }
  calls.end();
  to = received_;
  for (const DeviceTransfer& t : whole) {
    const Part part = t.part_of(own().ranks, own().index);
    launch_sum_parts(stream, t.dtype, part.size(), own().ranks, to, t.to, accumulate);
    to += received_bytes(t);
  }
}

/// An all-to-all of parts of unequal sizes.
void CopyEngine::exchange(const DeviceTransfer& t, std::byte* to, const Grouped& calls,
                          cudaStream_t stream) const {
  const nccl::DataType type = type_of(t.dtype);
  const std::int64_t received = t.part_of(own().ranks, own().index).size();
  const auto count_of = [](std::int64_t elements) { return static_cast<std::size_t>(elements); };
  for (int other = 0; other < own().ranks; ++other) {
    const Part theirs = t.part_of(own().ranks, other);
    if (theirs.size() > 0)
      calls.add(
          library().send(t.from_at(theirs.begin), count_of(theirs.size()), type, other, own().comm, stream));
    if (received > 0)
      calls.add(library().recv(to + count_of(other) * t.bytes_of(received), count_of(received), type, other,
                               own().comm, stream));
  }
}

/// Each rank adds up its part in place, and all get the parts of all.
void CopyEngine::all_reduce(const DeviceTransfers& whole, cudaStream_t stream) const {
  if (std::ranges::all_of(whole, [](const DeviceTransfer& t) { return t.elements < kFewElements; })) {
    Collectives::all_reduce(whole, stream);
    return;
  }
  DeviceTransfers parts = whole;
  for (DeviceTransfer& t : parts) t.to = t.to_at(t.part_of(own().ranks, own().index).begin);
  add_up(parts, stream, false);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].from = parts[i].to;
    parts[i].to = whole[i].to;
  }
  all_gather(parts, stream);
}

}  // namespace rooflm::backends::cuda
