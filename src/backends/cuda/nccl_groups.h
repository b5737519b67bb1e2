// The groups of ranks that a GPU shares work with, and their collectives through NCCL.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "backends/collective_way.h"
#include "backends/cuda/context.h"
#include "backends/cuda/kernels/peer_sum.h"
#include "backends/cuda/nccl_library.h"
#include "backends/cuda/nccl_windows.h"
#include "backends/cuda/peer_memory.h"
#include "core/dtype.h"
#include "program/groups.h"
#include "ranks/transport.h"

namespace rooflm::backends::cuda {

/// Elements of one tensor in device memory, as comm::Transfer has them.
struct DeviceTransfer {
  core::DType dtype = core::DType::f32;
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t elements = 0;  ///< of the whole tensor
  std::int64_t unit = 1;      ///< of the parts (program::part_of)
};

/// A message between two stages of a pipeline, as program/ops/collectives.cpp has them.
struct DeviceMessage {
  std::int64_t channel = 0;
  std::size_t bytes = 0;
};

/// A place for a copy of what is sent, until it is received.
struct Outbox {
  DeviceMemory copy;
  EventHandle sent;  ///< recorded when it was
};

/// One communicator per group, and one for each channel of a pipeline: what goes one way never waits for what
/// goes another. All only submit. While it lives, waiting for the context's stream ends with
/// ranks::RankLost when another rank has ended, or none of the ranks has come further for the transport's
/// patience.
class NcclGroups : public std::enable_shared_from_this<NcclGroups> {
 public:
  /// Joins the others of each group of `mesh`; all ranks call it. The group `data` gets a communicator of its
  /// own for each way that is wished for. Throws core::Unavailable where NCCL is not here or does not work,
  /// or is too old for that way.
  static std::shared_ptr<NcclGroups> join(const std::shared_ptr<Context>& context,
                                          std::shared_ptr<ranks::Transport> transport,
                                          const program::Mesh& mesh, CollectiveWish wish);
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;
  ~NcclGroups();

  /// The ways of the group `data`, CollectiveWay::usual first, and the one in which everything is submitted
  /// from here on. Without a wish: those that change no number and win where they are there: copies only
  /// where GPUs reach into each other's memory.
  [[nodiscard]] const std::vector<CollectiveWay>& ways() const { return ways_; }
  void set_way(CollectiveWay way);
  /// Memory for what collectives of the group `data` read and write, which a way may want to be reached by
  /// all. nullptr where none does.
  [[nodiscard]] RankMemory* memory() const { return memory_.get(); }
  /// The memory that ranks of the group `data` map into each other's address space; nullptr where they do
  /// not.
  [[nodiscard]] PeerMemory* peers() const { return peers_; }
  /// What a user is told of the way that was asked for; mostly nothing.
  [[nodiscard]] const std::string& remark() const { return remark_; }
  /// Says how much a reduce_scatter of these receives when it is one of copies.
  void reserve_received(program::Group group, const std::vector<DeviceTransfer>& whole);

  void all_reduce(program::Group group, const std::vector<DeviceTransfer>& whole, cudaStream_t stream) const;
  void all_gather(program::Group group, const std::vector<DeviceTransfer>& whole, cudaStream_t stream) const;
  void reduce_scatter(program::Group group, const std::vector<DeviceTransfer>& whole,
                      cudaStream_t stream) const;
  /// Whether parts are copied, and added up in a kernel of our own, which can add the sum to what is there.
  [[nodiscard]] bool adds_up(program::Group group) const;
  void reduce_scatter_copies(program::Group group, const std::vector<DeviceTransfer>& whole,
                             cudaStream_t stream, bool accumulate) const;
  /// At least `bytes` for sums of a lane until they are added to what is there. Its collectives run one after
  /// another, so they share it; who got less before keeps that.
  std::shared_ptr<const DeviceMemory> aside(program::Lane lane, std::size_t bytes);
  /// Of the group `data`, whose memory is mapped: sums in a kernel of our own, between barriers.
  void barrier(cudaStream_t stream) const;
  void all_reduce_mapped(program::Group group, const std::vector<DeviceTransfer>& whole,
                         cudaStream_t stream) const;
  void reduce_scatter_mapped(program::Group group, const std::vector<DeviceTransfer>& whole,
                             cudaStream_t stream) const;
  /// Where all of these addresses are on the other ranks. Throws std::logic_error unless they lie in one
  /// block.
  [[nodiscard]] PeerPlaces places_of(std::span<const void* const> data) const;

  /// In a ring: `from` goes to the next rank, `to` comes from the one before.
  void pass_on(program::Group group, const std::vector<DeviceTransfer>& whole, cudaStream_t stream) const;
  /// Messages of a channel arrive in the order in which they were sent; what is sent may be changed when the
  /// receiver has it.
  void send(const DeviceMessage& message, const void* from, cudaStream_t stream) const;
  void receive(const DeviceMessage& message, void* to, cudaStream_t stream) const;
  /// How many places a channel has for copies, and one of them, made on first use.
  [[nodiscard]] int places() const { return places_; }
  std::shared_ptr<const Outbox> outbox(const DeviceMessage& message, int place);

  [[nodiscard]] const NcclLibrary& library() const { return *library_; }
  [[nodiscard]] Context& context() const { return *context_; }

 private:
  NcclGroups(std::shared_ptr<Context> context, std::shared_ptr<ranks::Transport> transport,
             const program::Mesh& mesh, CollectiveWish wish);
  struct Member {
    nccl::Comm comm = nullptr;
    int ranks = 1, index = 0;
  };
  Member connect(const std::vector<int>& ranks, const std::string& what,
                 nccl::Config* config = nullptr) const;
  void connect_ways(const program::Mesh& mesh, CollectiveWish wish);
  void connect_peers(const std::vector<int>& ranks);
  [[nodiscard]] bool may_try(CollectiveWish wish) const;
  [[nodiscard]] RankMemory::Range range_over(const std::vector<int>& ranks, std::uint64_t own) const;
  void connect_channels(const program::Mesh& mesh);
  void exchange(const Member& own, const DeviceTransfer& t, std::byte* to, cudaStream_t stream) const;
  void all_reduce_copies(program::Group group, const std::vector<DeviceTransfer>& whole,
                         cudaStream_t stream) const;
  void all_gather_mapped(const std::vector<DeviceTransfer>& whole, cudaStream_t stream) const;
  void sum_mapped(const std::vector<DeviceTransfer>& whole, cudaStream_t stream, bool to_all) const;
  template <class Body>
  void for_each_member(const Body& body);
  void watch(double waited_s);
  void abort();
  void wait_for_aborts() const;
  void look_for_the_lost() const;
  [[nodiscard]] const Member& member(program::Group group) const {
    if (group == program::Group::data) {
      if (const auto own = of_data_.find(way_); own != of_data_.end()) return own->second;
    }
    return members_.at(static_cast<std::size_t>(group));
  }

  const NcclLibrary* library_ = nullptr;
  std::shared_ptr<Context> context_;
  std::shared_ptr<ranks::Transport> transport_;
  struct Aborts {
    std::atomic<int> running = 0;
  };
  std::shared_ptr<Aborts> aborts_ = std::make_shared<Aborts>();
  std::array<Member, 5> members_{};          ///< by group
  std::map<CollectiveWay, Member> of_data_;  ///< by way, of those that have a communicator of their own
  std::vector<CollectiveWay> ways_ = {CollectiveWay::usual};
  CollectiveWay way_ = CollectiveWay::usual;
  std::unique_ptr<RankMemory> memory_;
  PeerMemory* peers_ = nullptr;  ///< memory_, if it is that
  std::string remark_;
  std::byte* received_ = nullptr;  ///< of copies, in a window
  std::size_t received_bytes_ = 0;
  std::map<program::Lane, std::shared_ptr<const DeviceMemory>> aside_;
  int places_ = 1;
  std::map<std::tuple<std::int64_t, std::size_t, int>, std::shared_ptr<const Outbox>>
      outboxes_;                             ///< by channel, bytes and place
  std::map<std::int64_t, Member> channels_;  ///< of messages that this rank sends or receives
};

}  // namespace rooflm::backends::cuda
