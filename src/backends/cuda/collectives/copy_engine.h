// Collectives by copies without kernels, and sums in a kernel of our own, in fp32 and rank order.
#pragma once

#include <cstddef>
#include <memory>

#include "backends/cuda/collectives/collectives.h"
#include "backends/cuda/collectives/rank_memory.h"

namespace rooflm::backends::cuda {

class CopyEngine final : public Collectives {
 public:
  /// `memory`: for what is received; nullptr until it is known whether ranks reach each other's.
  CopyEngine(const NcclLibrary& library, const Member& own, const std::unique_ptr<RankMemory>& memory)
      : Collectives(library, own), memory_(&memory) {}
  static nccl::Config config() {
    nccl::Config config;
    config.cta_policy = nccl::kCtaPolicyZero;
    return config;
  }

  void all_reduce(const DeviceTransfers& whole, cudaStream_t stream) const override;
  void reduce_scatter(const DeviceTransfers& whole, cudaStream_t stream) const override {
    add_up(whole, stream, false);
  }
  [[nodiscard]] bool add_scattered(const DeviceTransfers& whole, cudaStream_t stream) const override {
    add_up(whole, stream, true);
    return true;
  }
  void reserve(const DeviceTransfers& whole) override;

 private:
  void add_up(const DeviceTransfers& whole, cudaStream_t stream, bool accumulate) const;
  void exchange(const DeviceTransfer& t, std::byte* to, const Grouped& calls, cudaStream_t stream) const;
  [[nodiscard]] std::size_t received_bytes(const DeviceTransfer& t) const;

  const std::unique_ptr<RankMemory>* memory_;
  std::byte* received_ = nullptr;
  std::size_t received_bytes_ = 0;
};

}  // namespace rooflm::backends::cuda
