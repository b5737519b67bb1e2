// Ways of collectives of data-parallel ranks beside NCCL's default: few blocks, copies without kernels, and
// memory that ranks map.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "backends/cuda/check.h"
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/peer_barrier.h"
#include "backends/cuda/nccl_calls.h"
#include "backends/cuda/nccl_groups.h"
#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

using program::Group;
using program::Part;

/// Blocks of a kernel that takes few. On Hopper one moves some 44 (gathers) to 65 GB/s (sums) over NVLink
/// (NCCL 2.28.9, sym_kernels.cc), so four are enough for a layer's gradients while its backward pass runs.
constexpr int kFewBlocks = 4;
/// What is received of each tensor begins at a multiple of that many bytes.
constexpr std::size_t kReceivedUnit = 512;

/// Of all parts of one rank, from all ranks: of the first, whose parts are the largest, so that what is
/// received of a tensor begins at the same place on all ranks.
std::size_t received_bytes(const DeviceTransfer& t, int ranks) {
  const std::size_t bytes = static_cast<std::size_t>(ranks) * bytes_of(t, part_of(t, ranks, 0).size());
  return (bytes + kReceivedUnit - 1) / kReceivedUnit * kReceivedUnit;
}

nccl::Config config_of(CollectiveWay way) {
  nccl::Config config;
  if (way == CollectiveWay::few_blocks) {
    config.min_ctas = 1;
    config.max_ctas = kFewBlocks;
  } else {
    config.cta_policy = nccl::kCtaPolicyZero;
  }
  return config;
}

}  // namespace

void NcclGroups::connect_ways(const program::Mesh& mesh, CollectiveWish wish) {
  std::vector<CollectiveWay> wanted = {CollectiveWay::few_blocks, CollectiveWay::copy_engine};
  if (wish) wanted = {*wish};
  const std::vector<int> ranks = mesh.members(transport_->rank(), Group::data);
  if (wish == CollectiveWay::peer_memory) {
    connect_peers(ranks);
    return;
  }
  if (wanted.front() == CollectiveWay::usual || (!wish && ranks.size() < 2) || !may_try(wish)) return;
  std::vector<nccl::Comm> comms;
  for (const CollectiveWay way : wanted) {
    nccl::Config config = config_of(way);
    const Member made = connect(ranks, fmt::format("the group 'data' ({})", name_of(way)), &config);
    of_data_[way] = made;
    if (made.comm != nullptr) comms.push_back(made.comm);
    ways_.push_back(way);
  }
  if (comms.empty()) return;
  auto windows = std::make_unique<NcclWindows>(
      *library_, comms, [this, ranks](std::uint64_t own) { return range_over(ranks, own); });
  // A first block shows whether GPUs reach each other; it stays, for small pieces.
  static_cast<void>(windows->allocate(1, 0));
  const bool is_reached = windows->is_reached();
  memory_ = std::move(windows);
  if (ranks::most(*transport_, is_reached ? 0 : 1) == 0) return;
  if (!wish) {
    std::erase(ways_, CollectiveWay::copy_engine);
  } else if (*wish == CollectiveWay::copy_engine) {
    remark_ =
        "GPUs do not reach each other's memory here: with --collectives copy-engine copies take kernels of "
        "NCCL";
  } else {
    remark_ =
        "GPUs do not reach each other's memory here: with --collectives few-blocks NCCL's usual kernels have "
        "few blocks";
  }
}

void NcclGroups::connect_peers(const std::vector<int>& ranks) {
  const int hosts = transport_->hosts();
  if (hosts > 1) {
    throw core::Unavailable(
        fmt::format("--collectives peer-memory: ranks of {} hosts do not reach each other's memory", hosts));
  }
  ways_.push_back(CollectiveWay::peer_memory);
  if (ranks.size() < 2) return;
  transport_->set_op("mapping the memory of other ranks");
  auto peers = std::make_unique<PeerMemory>(
      context_, transport_, ranks, [this, ranks](std::uint64_t own) { return range_over(ranks, own); });
  peers_ = peers.get();
  memory_ = std::move(peers);
}

RankMemory::Range NcclGroups::range_over(const std::vector<int>& ranks, std::uint64_t own) const {
  std::vector<std::uint64_t> all(ranks.size(), own);
  std::vector<ranks::Outgoing> out;
  std::vector<ranks::Incoming> in;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == transport_->rank()) continue;
    out.push_back({ranks[i], std::as_bytes(std::span(&own, 1))});
    in.push_back({ranks[i], std::as_writable_bytes(std::span(&all[i], 1))});
  }
  transport_->exchange(ranks::kShared, out, in);
  const auto [least, greatest] = std::ranges::minmax(all);
  return {least, greatest};
}

/// Sums of two have the same bits in all ways; those of more need not.
bool NcclGroups::may_try(CollectiveWish wish) const {
  if (wish) {
    if (library_->has_ways()) return true;
    throw core::Unavailable(fmt::format("--collectives {}: NCCL {} is too old, 2.28.7 can do it",
                                        name_of(wish), library_->version_text()));
  }
  const bool same_bits = members_.at(static_cast<std::size_t>(Group::data)).ranks <= 2;
  // Stages of a pipeline may have data groups of other sizes: one answer for all.
  const int hindered = library_->has_ways() && (same_bits || !context_->options().deterministic) ? 0 : 1;
  return ranks::most(*transport_, hindered) == 0;
}

void NcclGroups::set_way(CollectiveWay way) {
  way_ = way;
  context_->spare_multiprocessors(way == CollectiveWay::few_blocks ? kFewBlocks : 0);
}

bool NcclGroups::adds_up(Group group) const {
  return group == Group::data && way_ == CollectiveWay::copy_engine;
}

void NcclGroups::reserve_received(Group group, const std::vector<DeviceTransfer>& whole) {
  const auto found = of_data_.find(CollectiveWay::copy_engine);
  if (group != Group::data || found == of_data_.end() || memory_ == nullptr) return;
  const Member& own = found->second;
  std::size_t bytes = 0;
  for (const DeviceTransfer& t : whole) bytes += received_bytes(t, own.ranks);
  if (bytes <= received_bytes_) return;
  received_ = static_cast<std::byte*>(memory_->allocate(bytes, 0));  // recordings keep the one before
  received_bytes_ = bytes;
}

/// Each rank gets all ranks' values of its part, by copies, and adds them up.
void NcclGroups::reduce_scatter_copies(Group group, const std::vector<DeviceTransfer>& whole,
                                       cudaStream_t stream, bool accumulate) const {
  const Member& own = member(group);
  Grouped calls(*library_);
  std::byte* to = received_;
  for (const DeviceTransfer& t : whole) {
    const Part part = part_of(t, own.ranks, own.index);
    if (is_even(t, own.ranks)) {
      library_->check(
          library_->all_to_all(t.from, to, count_of(part.size()), type_of(t.dtype), own.comm, stream),
          "reduce_scatter by copies");
    } else {
      exchange(own, t, to, stream);
    }
    to += received_bytes(t, own.ranks);
  }
  calls.end("reduce_scatter by copies");
  to = received_;
  for (const DeviceTransfer& t : whole) {
    const Part part = part_of(t, own.ranks, own.index);
    launch_sum_parts(stream, t.dtype, part.size(), own.ranks, to, t.to, accumulate);
    to += received_bytes(t, own.ranks);
  }
}

void NcclGroups::barrier(cudaStream_t stream) const {
  if (peers_ != nullptr) launch_peer_barrier(stream, peers_->barrier());
}

/// Copies of the other ranks' parts, by copy engines. Barriers of the program say when they are there.
void NcclGroups::all_gather_mapped(const std::vector<DeviceTransfer>& whole, cudaStream_t stream) const {
  const Member& own = member(Group::data);
  for (const DeviceTransfer& t : whole) {
    const PeerMemory::Shifts& shifts = peers_->shifts_of(t.from);
    for (int i = 0; i < own.ranks; ++i) {
      const int rank = (own.index + i) % own.ranks;  // so that not all read from one
      const Part part = part_of(t, own.ranks, rank);
      const auto* from = static_cast<const std::byte*>(t.from) + shifts.at(static_cast<std::size_t>(rank));
      auto* to = static_cast<std::byte*>(t.to) + bytes_of(t, part.begin);
      if (part.size() == 0 || from == to) continue;
      check(cudaMemcpyAsync(to, from, bytes_of(t, part.size()), cudaMemcpyDeviceToDevice, stream),
            "all_gather by copies");
    }
  }
}

PeerPlaces NcclGroups::places_of(std::span<const void* const> data) const {
  const PeerMemory::Shifts& shifts = peers_->shifts_of(data.front());
  for (const void* one : data) {
    if (peers_->shifts_of(one) != shifts) throw std::logic_error("tensors of one op lie in several blocks");
  }
  PeerPlaces places{.ranks = peers_->barrier().ranks};
  std::ranges::copy(shifts, places.shift);
  return places;
}

/// Each rank adds up its part of all.
void NcclGroups::sum_mapped(const std::vector<DeviceTransfer>& whole, cudaStream_t stream,
                            bool to_all) const {
  const Member& own = member(Group::data);
  std::vector<const void*> from;
  std::map<core::DType, std::vector<SummedTensor>> tensors;
  for (const DeviceTransfer& t : whole) {
    const Part part = part_of(t, own.ranks, own.index);
    const void* begin = at(t, t.from, part.begin);
    void* to = to_all ? static_cast<std::byte*>(t.to) + bytes_of(t, part.begin) : t.to;
    from.push_back(t.from);
    tensors[t.dtype].push_back({.count = part.size(), .from = begin, .to = to});
  }
  const PeerPlaces places = places_of(from);
  for (const auto& [dtype, list] : tensors) launch_peer_sum(stream, dtype, list, places, to_all);
}

/// In place: the sums of a rank's part go to where all others have that part.
void NcclGroups::all_reduce_mapped(Group /*group*/, const std::vector<DeviceTransfer>& whole,
                                   cudaStream_t stream) const {
  sum_mapped(whole, stream, true);
}

void NcclGroups::reduce_scatter_mapped(Group /*group*/, const std::vector<DeviceTransfer>& whole,
                                       cudaStream_t stream) const {
  sum_mapped(whole, stream, false);
}

/// An all-to-all of parts of unequal sizes.
void NcclGroups::exchange(const Member& own, const DeviceTransfer& t, std::byte* to,
                          cudaStream_t stream) const {
  const nccl::DataType type = type_of(t.dtype);
  const std::int64_t received = part_of(t, own.ranks, own.index).size();
  for (int other = 0; other < own.ranks; ++other) {
    const Part theirs = part_of(t, own.ranks, other);
    if (theirs.size() > 0) {
      library_->check(
          library_->send(at(t, t.from, theirs.begin), count_of(theirs.size()), type, other, own.comm, stream),
          "reduce_scatter by copies");
    }
    if (received > 0) {
      library_->check(library_->recv(to + static_cast<std::size_t>(other) * bytes_of(t, received),
                                     count_of(received), type, other, own.comm, stream),
                      "reduce_scatter by copies");
    }
  }
}

/// Each rank adds up its part in place, and all get the parts of all.
void NcclGroups::all_reduce_copies(Group group, const std::vector<DeviceTransfer>& whole,
                                   cudaStream_t stream) const {
  const Member& own = member(group);
  std::vector<DeviceTransfer> parts = whole;
  for (DeviceTransfer& t : parts) {
    const Part part = part_of(t, own.ranks, own.index);
    t.to = static_cast<std::byte*>(t.to) + bytes_of(t, part.begin);
  }
  reduce_scatter_copies(group, parts, stream, false);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].from = parts[i].to;
    parts[i].to = whole[i].to;
  }
  all_gather(group, parts, stream);
}

}  // namespace rooflm::backends::cuda
