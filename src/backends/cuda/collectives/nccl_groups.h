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
#include "backends/cuda/collectives/collectives.h"
#include "backends/cuda/collectives/nccl_library.h"
#include "backends/cuda/collectives/peer_collectives.h"
#include "backends/cuda/collectives/rank_memory.h"
#include "backends/cuda/context.h"
#include "program/groups.h"
#include "ranks/transport.h"

namespace rooflm::backends::cuda {

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
  /// Collectives of the group `data` where its ranks map each other's memory; otherwise nullptr.
  [[nodiscard]] const PeerCollectives* peers() const { return peers_; }
  /// What a user is told of the way that was asked for; mostly nothing.
  [[nodiscard]] const std::string& remark() const { return remark_; }
  /// Collectives of a group in the way of now.
  [[nodiscard]] const Collectives& of(program::Group group) const;
  /// Says how much a reduction of these receives, in whatever way.
  void reserve(program::Group group, const DeviceTransfers& whole);
  /// At least `bytes` for sums of a lane until they are added to what is there. Its collectives run one after
  /// another, so they share it; who got less before keeps that.
  std::shared_ptr<const DeviceMemory> aside(program::Lane lane, std::size_t bytes);

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
  Member connect(const std::vector<int>& ranks, const std::string& what,
                 nccl::Config* config = nullptr) const;
  void connect_ways(const program::Mesh& mesh, CollectiveWish wish);
  void connect_peers(const std::vector<int>& ranks);
  [[nodiscard]] bool may_try(CollectiveWish wish) const;
  [[nodiscard]] RankMemory::Ask ask_among(const std::vector<int>& ranks) const;
  void connect_channels(const program::Mesh& mesh);
  template <class Body>
  void for_each_member(const Body& body);
  void watch(double waited_s);
  void abort();
  void wait_for_aborts() const;
  void look_for_the_lost() const;
  [[nodiscard]] const Member& member(program::Group group) const {
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
  std::array<std::unique_ptr<Collectives>, 5> usual_;                 ///< by group
  std::map<CollectiveWay, std::unique_ptr<Collectives>> other_ways_;  ///< of the group `data`
  const PeerCollectives* peers_ = nullptr;                            ///< one of these
  std::string remark_;
  std::map<program::Lane, std::shared_ptr<const DeviceMemory>> aside_;
  int places_ = 1;
  std::map<std::tuple<std::int64_t, std::size_t, int>, std::shared_ptr<const Outbox>>
      outboxes_;                             ///< by channel, bytes and place
  std::map<std::int64_t, Member> channels_;  ///< of messages that this rank sends or receives
};

}  // namespace rooflm::backends::cuda
