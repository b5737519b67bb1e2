// Memory that ranks of one host map into each other's address space.
#include "backends/cuda/collectives/peer_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>
#include <stdexcept>
#include <utility>

#include "backends/cuda/check.h"
#include "core/error.h"
#include "ranks/gather.h"

namespace rooflm::backends::cuda {
namespace {

/// What a rank tells the others of its opening theirs.
struct Outcome {
  std::array<char, 256> failure{};  ///< empty: all are open
};

}  // namespace

PeerMemory::PeerMemory(std::shared_ptr<Context> context, std::shared_ptr<ranks::Transport> transport,
                       std::vector<int> ranks, Ask ask)
    : RankMemory(std::move(ask)),
      context_(std::move(context)),
      transport_(std::move(transport)),
      ranks_(std::move(ranks)),
      stop_(make_pinned<unsigned>(1)) {
  if (ranks_.size() > kMostPeers) {
    throw core::Unavailable(
        fmt::format("--collectives peer-memory: at most {} ranks map each other's memory, not {}", kMostPeers,
                    ranks_.size()));
  }
  index_ = static_cast<std::size_t>(std::ranges::find(ranks_, transport_->rank()) - ranks_.begin());
  constexpr std::size_t kBytes = std::size_t{2} * kMostPeers * sizeof(unsigned);
  auto* own = static_cast<unsigned*>(allocate(kBytes, 0));
  check(cudaMemset(own, 0, kBytes), "zeroing a barrier");
  const Shifts& shifts = shifts_of(own);
  barrier_ = {.ranks = static_cast<int>(ranks_.size()),
              .index = static_cast<int>(index_),
              .round = own + kMostPeers,
              .stop = stop_.get()};
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    barrier_.arrivals[i] = reinterpret_cast<unsigned*>(reinterpret_cast<std::byte*>(own) + shifts.at(i));
  check(cudaDeviceSynchronize(), "zeroing a barrier");
  meet();  // nobody arrives before the numbers are 0
}

PeerMemory::~PeerMemory() { free_all(); }

void PeerMemory::meet() const { static_cast<void>(ranks::gather(*transport_, ranks::kShared, ranks_, '0')); }

std::byte* PeerMemory::make_block(std::size_t bytes, bool is_reached) {
  void* data = nullptr;
  check_allocation(cudaMalloc(&data, bytes), bytes);
  auto* first = static_cast<std::byte*>(data);
  if (!is_reached) return first;
  try {
    opened_[first] = open(first);
  } catch (const core::Error&) {
    static_cast<void>(cudaFree(data));
    throw;
  }
  return first;
}

/// Opens the block of each other rank that goes with this one.
PeerMemory::Shifts PeerMemory::open(std::byte* data) {
  cudaIpcMemHandle_t own{};
  const cudaError_t exported = cudaIpcGetMemHandle(&own, data);
  static_cast<void>(cudaGetLastError());
  const std::vector<cudaIpcMemHandle_t> handles = ranks::gather(*transport_, ranks::kShared, ranks_, own);
  Outcome outcome;
  Shifts shifts{};
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (i == index_) continue;
    void* theirs = nullptr;
    const cudaError_t error = exported != cudaSuccess
                                  ? exported
                                  : cudaIpcOpenMemHandle(&theirs, handles[i], cudaIpcMemLazyEnablePeerAccess);
    static_cast<void>(cudaGetLastError());
    if (error == cudaSuccess) {
      shifts.at(i) = static_cast<std::byte*>(theirs) - data;
    } else if (outcome.failure[0] == '\0') {
      const std::string text =
          fmt::format("{} does not reach the memory of {}: {}", transport_->name_of(transport_->rank()),
                      transport_->name_of(ranks_[i]), cudaGetErrorString(error));
      text.copy(outcome.failure.data(), outcome.failure.size() - 1);
    }
  }
  for (const Outcome& one : ranks::gather(*transport_, ranks::kShared, ranks_, outcome)) {
    if (one.failure[0] == '\0') continue;
    for (const std::ptrdiff_t shift : shifts) {
      if (shift != 0) static_cast<void>(cudaIpcCloseMemHandle(data + shift));
    }
    meet();
    throw core::Unavailable(fmt::format("--collectives peer-memory: {}", one.failure.data()));
  }
  return shifts;
}

const PeerMemory::Shifts& PeerMemory::shifts_of(const void* data) const {
  const auto found = opened_.find(block_of(data));
  if (found == opened_.end()) throw std::logic_error("ranks do not reach this memory");
  return found->second;
}

void PeerMemory::abandon() {
  is_abandoned_ = true;
  *stop_.get() = 1;
}

/// A rank that has come this far reads none of the others' memory any more: it closes theirs, waits until all
/// have closed its own, and frees it.
void PeerMemory::free_block(std::byte* data) noexcept {
  if (std::uncaught_exceptions() > 0) abandon();  // this rank fails: the others are somewhere else
  static_cast<void>(cudaDeviceSynchronize());
  if (const auto opened = opened_.find(data); opened != opened_.end()) {
    for (const std::ptrdiff_t shift : opened->second) {
      if (shift != 0) static_cast<void>(cudaIpcCloseMemHandle(data + shift));
    }
    opened_.erase(opened);
    try {
      if (!is_abandoned_) meet();
    } catch (const std::exception&) {
      is_abandoned_ = true;  // another rank is lost, and reads nothing any more
    }
  }
  static_cast<void>(cudaFree(data));
}

}  // namespace rooflm::backends::cuda
