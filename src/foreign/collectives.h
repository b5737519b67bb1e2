// Collectives of NCCL that a recorded program called, with the kernels that did them. Private to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "inject/stream_format.h"

namespace rooflm::foreign {

/// One collective, or message, of this rank.
struct Collective {
  std::string op{};                     ///< "AllReduce", as NCCL calls it
  std::string extra{};                  ///< members of record::Activity::extra, "sequence" among them
  std::string communicator{};           ///< its number, as NCCL has it
  std::int64_t bytes = 0;               ///< of this rank's count
  std::size_t row = 0;                  ///< the host's: when it was asked for
  std::optional<std::size_t> kernel{};  ///< the row of the kernel; several may share one
};

/// What NCCL's profiler told, else its ranges of NVTX (from which neither the number of ranks nor types are
/// known). `call_of` says which call started a row. A collective is done by the last kernel of NCCL that its
/// thread had started when NCCL told of it, or the first after its range began; where that thread started
/// none (a callback), by the next kernel of NCCL that ends after it was told. Of steps that were timed alone
/// no kernel is known.
std::vector<Collective> find_collectives(
    const std::vector<inject::Row>& rows, const std::unordered_map<std::uint32_t, std::string>& texts,
    const std::function<const inject::Row*(const inject::Row&)>& call_of);

}  // namespace rooflm::foreign
