// Collectives of ranks that map each other's memory.
#include "backends/cuda/collectives/peer_collectives.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <vector>

#include "backends/cuda/check.h"

namespace rooflm::backends::cuda {

void PeerCollectives::all_gather(const DeviceTransfers& whole, cudaStream_t stream) const {
  for (const DeviceTransfer& t : whole) {
    const PeerMemory::Shifts& shifts = memory_->shifts_of(t.from);
    for (int i = 0; i < own().ranks; ++i) {
      const int rank = (own().index + i) % own().ranks;  // so that not all read from one
      const program::Part part = t.part_of(own().ranks, rank);
      const auto* from = static_cast<const std::byte*>(t.from) + shifts.at(static_cast<std::size_t>(rank));
      std::byte* to = t.to_at(part.begin);
      if (part.size() == 0 || from == to) continue;
      check(cudaMemcpyAsync(to, from, t.bytes_of(part.size()), cudaMemcpyDeviceToDevice, stream),
            "all_gather by copies");
    }
  }
}

PeerPlaces PeerCollectives::places_of(std::span<const void* const> data) const {
  const PeerMemory::Shifts& shifts = memory_->shifts_of(data.front());
  for (const void* one : data) {
    if (memory_->shifts_of(one) != shifts) throw std::logic_error("tensors of one op lie in several blocks");
  }
  PeerPlaces places{.ranks = memory_->barrier().ranks};
  std::ranges::copy(shifts, places.shift);
  return places;
}

void PeerCollectives::sum(const DeviceTransfers& whole, cudaStream_t stream, bool to_all) const {
  std::vector<const void*> from;
  std::map<core::DType, std::vector<SummedTensor>> tensors;
  for (const DeviceTransfer& t : whole) {
    const program::Part part = t.part_of(own().ranks, own().index);
    from.push_back(t.from);
    tensors[t.dtype].push_back(
        {.count = part.size(), .from = t.from_at(part.begin), .to = to_all ? t.to_at(part.begin) : t.to});
  }
  const PeerPlaces places = places_of(from);
  for (const auto& [dtype, list] : tensors) launch_peer_sum(stream, dtype, list, places, to_all);
}

}  // namespace rooflm::backends::cuda
