// The groups of ranks that a GPU shares work with, and their collectives through NCCL.
#include "backends/cuda/collectives/nccl_groups.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "backends/cuda/collectives/copy_engine.h"
#include "backends/cuda/collectives/few_blocks.h"
#include "backends/cuda/collectives/nccl_windows.h"
#include "core/error.h"
#include "ranks/gather.h"

namespace rooflm::backends::cuda {
namespace {

using program::Group;

/// A way with a communicator of its own.
struct Way {
  CollectiveWay way;
  nccl::Config (*config)();
  std::unique_ptr<Collectives> (*make)(const NcclLibrary&, const Member&, const std::unique_ptr<RankMemory>&);
};
template <class T>
std::unique_ptr<Collectives> make(const NcclLibrary& library, const Member& own,
                                  const std::unique_ptr<RankMemory>& memory) {
  if constexpr (std::is_constructible_v<T, const NcclLibrary&, const Member&>)
    return std::make_unique<T>(library, own);
  else
    return std::make_unique<T>(library, own, memory);
}
constexpr std::array kWays = {Way{CollectiveWay::few_blocks, FewBlocks::config, make<FewBlocks>},
                              Way{CollectiveWay::copy_engine, CopyEngine::config, make<CopyEngine>}};

/// Ranks that share a GPU: NCCL takes two with the same GPU of one host for a mistake, so each says that it
/// is a host of its own (getHostHash of NCCL's utils.cc), and they talk through sockets. Few channels, since
/// all of their buffers have to fit. What the user has set stays.
void act_as_host(const ranks::Transport& transport) {
  const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 0); };
  set("NCCL_HOSTID", fmt::format("{}-{}-{}", ranks::host_name(), transport.place().job, transport.rank()));
  set("NCCL_NET", "Socket");
  if (transport.hosts() == 1) set("NCCL_SOCKET_IFNAME", "lo");
  set("NCCL_MAX_NCHANNELS", "2");
}

/// Another rank is lost, and with it what this GPU waits for. Ends the process with its line when it has not
/// ended by itself: on its way out the driver may wait for kernels that never end.
void end_anyway(const std::string& why, core::ExitCode code) {
  static constexpr std::chrono::milliseconds kGrace{2000};
  try {
    std::thread([line = "rooflm: " + why + "\n", code] {
      std::this_thread::sleep_for(kGrace);
      static_cast<void>(::write(STDERR_FILENO, line.data(), line.size()));
      ::_exit(static_cast<int>(code));
    }).detach();
  } catch (
      const std::system_error&) {  // NOLINT(bugprone-empty-catch): no thread to be had, and `why` matters
  }
}

}  // namespace

std::shared_ptr<NcclGroups> NcclGroups::join(const std::shared_ptr<Context>& context,
                                             std::shared_ptr<ranks::Transport> transport,
                                             const program::Mesh& mesh, CollectiveWish wish) {
  std::shared_ptr<NcclGroups> groups(new NcclGroups(context, std::move(transport), mesh, wish));
  context->set_watch([weak = groups->weak_from_this()](double waited_s) {
    if (const auto self = weak.lock()) self->watch(waited_s);
  });
  return groups;
}

NcclGroups::NcclGroups(std::shared_ptr<Context> context, std::shared_ptr<ranks::Transport> transport,
                       const program::Mesh& mesh, CollectiveWish wish)
    : context_(std::move(context)), transport_(std::move(transport)) {
  if (transport_->place().shares_gpus) act_as_host(*transport_);
  library_ = &nccl_library();
  context_->select();
  for (const Group group : {Group::tensor, Group::data, Group::pipeline, Group::tied, Group::context}) {
    const auto index = static_cast<std::size_t>(group);
    members_.at(index) = connect(mesh.members(transport_->rank(), group),
                                 fmt::format("the group '{}'", program::name_of(group)));
    usual_.at(index) = std::make_unique<Collectives>(*library_, members_.at(index));
  }
  connect_channels(mesh);
  connect_ways(mesh, wish);
  transport_->set_op("");
}

NcclGroups::~NcclGroups() {
  if (std::uncaught_exceptions() > 0) abort();
  wait_for_aborts();
  memory_.reset();
  for_each_member([&](Member& member) {
    if (member.comm != nullptr) static_cast<void>(library_->comm_destroy(member.comm));
  });
}

template <class Body>
void NcclGroups::for_each_member(const Body& body) {
  for (Member& member : members_) body(member);
  for (auto& [way, member] : of_data_) body(member);
  for (auto& [channel, member] : channels_) body(member);
}

/// The first rank of a group makes its name, the others get it by message.
Member NcclGroups::connect(const std::vector<int>& ranks, const std::string& what,
                           nccl::Config* config) const {
  Member member;
  if (ranks.size() < 2) return member;
  transport_->set_op(fmt::format("joining {} of NCCL", what));
  member.ranks = static_cast<int>(ranks.size());
  member.index = static_cast<int>(std::ranges::find(ranks, transport_->rank()) - ranks.begin());
  nccl::UniqueId id{};
  if (member.index == 0) {
    library_->check(library_->get_unique_id(&id), "naming a group of ranks");
    for (std::size_t i = 1; i < ranks.size(); ++i)
      transport_->send(ranks[i], ranks::kShared, std::as_bytes(std::span(&id, 1)));
  } else {
    const ranks::Incoming incoming{ranks.front(), std::as_writable_bytes(std::span(&id, 1))};
    transport_->exchange(ranks::kShared, {}, {&incoming, 1});
  }
  const nccl::Result result =
      config == nullptr
          ? library_->comm_init_rank(&member.comm, member.ranks, id, member.index)
          : library_->comm_init_rank_config(&member.comm, member.ranks, id, member.index, config);
  library_->check(result, fmt::format("joining {} of {} ranks", what, member.ranks));
  return member;
}

/// In the order of channels, on all ranks: nobody waits in a circle.
void NcclGroups::connect_channels(const program::Mesh& mesh) {
  if (mesh.pipeline < 2) return;
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking != nullptr && std::string(blocking) == "1")
    throw core::UsageError(
        "CUDA_LAUNCH_BLOCKING=1 with --pp: two stages that send to each other would wait for ever");
  places_ = 2 * mesh.pipeline * mesh.interleave;
  const std::vector<int> stages = mesh.members(transport_->rank(), Group::pipeline);
  const auto stage_of = [&](int part) { return stages[static_cast<std::size_t>(part % mesh.pipeline)]; };
  for (int part = 0; part + 1 < mesh.pipeline * mesh.interleave; ++part) {
    const std::vector<int> ends = {stage_of(part), stage_of(part + 1)};
    if (std::ranges::find(ends, transport_->rank()) == ends.end()) continue;
    for (const std::int64_t channel : {std::int64_t{part}, -1 - std::int64_t{part}})
      channels_[channel] = connect(ends, fmt::format("channel {} of the pipeline", channel));
  }
}

void NcclGroups::connect_ways(const program::Mesh& mesh, CollectiveWish wish) {
  const std::vector<int> ranks = mesh.members(transport_->rank(), Group::data);
  if (wish == CollectiveWay::peer_memory) {
    connect_peers(ranks);
    return;
  }
  if (wish == CollectiveWay::usual || (!wish && ranks.size() < 2) || !may_try(wish)) return;
  std::vector<nccl::Comm> comms;
  for (const Way& row : kWays) {
    if (wish.value_or(row.way) != row.way) continue;
    nccl::Config config = row.config();
    Member& made = of_data_[row.way];
    made = connect(ranks, fmt::format("the group 'data' ({})", name_of(row.way)), &config);
    other_ways_[row.way] = row.make(*library_, made, memory_);
    if (made.comm != nullptr) comms.push_back(made.comm);
    ways_.push_back(row.way);
  }
  if (comms.empty()) return;
  auto windows = std::make_unique<NcclWindows>(*library_, comms, ask_among(ranks));
  // A first block shows whether GPUs reach each other; it stays, for small pieces.
  static_cast<void>(windows->allocate(1, 0));
  const bool is_reached = windows->is_reached();
  memory_ = std::move(windows);
  if (ranks::most(*transport_, is_reached ? 0 : 1) == 0) return;
  if (!wish) {
    std::erase(ways_, CollectiveWay::copy_engine);
  } else {
    remark_ =
        fmt::format("GPUs do not reach each other's memory here: with --collectives {}", name_of(wish)) +
        (*wish == CollectiveWay::copy_engine ? " copies take kernels of NCCL"
                                             : " NCCL's usual kernels have few blocks");
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
  auto memory = std::make_unique<PeerMemory>(context_, transport_, ranks, ask_among(ranks));
  auto peers = std::make_unique<PeerCollectives>(*library_, member(Group::data), *memory);
  memory_ = std::move(memory);
  peers_ = peers.get();
  other_ways_[CollectiveWay::peer_memory] = std::move(peers);
}

RankMemory::Ask NcclGroups::ask_among(const std::vector<int>& ranks) const {
  return [transport = transport_, ranks](std::uint64_t own) {
    const auto [least, greatest] = std::ranges::minmax(ranks::gather(*transport, ranks::kShared, ranks, own));
    return RankMemory::Range{least, greatest};
  };
}

/// Sums of two have the same bits in all ways; those of more need not.
bool NcclGroups::may_try(CollectiveWish wish) const {
  if (wish) {
    if (library_->has_ways()) return true;
    throw core::Unavailable(fmt::format("--collectives {}: NCCL {} is too old, 2.28.7 can do it",
                                        name_of(wish), library_->version_text()));
  }
  const bool same_bits = member(Group::data).ranks <= 2;
  // Stages of a pipeline may have data groups of other sizes: one answer for all.
  const int hindered = library_->has_ways() && (same_bits || !context_->options().deterministic) ? 0 : 1;
  return ranks::most(*transport_, hindered) == 0;
}

void NcclGroups::set_way(CollectiveWay way) {
  way_ = way;
  context_->spare_multiprocessors(of(Group::data).multiprocessors());
}

const Collectives& NcclGroups::of(Group group) const {
  if (group == Group::data) {
    if (const auto other = other_ways_.find(way_); other != other_ways_.end()) return *other->second;
  }
  return *usual_.at(static_cast<std::size_t>(group));
}

void NcclGroups::reserve(Group group, const DeviceTransfers& whole) {
  if (group != Group::data) return;
  for (const auto& [way, collectives] : other_ways_) collectives->reserve(whole);
}

/// Kernels of NCCL wait for other ranks for ever: aborted, they end. The call itself returns when no graph
/// has any of them any more, so each has a thread, and whoever aborts goes on.
void NcclGroups::abort() {
  if (memory_ != nullptr) memory_->abandon();
  for_each_member([&](Member& member) {
    if (member.comm == nullptr) return;
    const nccl::Comm comm = std::exchange(member.comm, nullptr);
    ++aborts_->running;
    try {
      std::thread([library = library_, comm, aborts = aborts_] {
        static_cast<void>(library->comm_abort(comm));
        --aborts->running;
      }).detach();
    } catch (const std::system_error&) {  // no thread to be had: the process ends, and its kernels with it
      --aborts_->running;
    }
  });
}

/// What they use goes next. One that does not end must not hold up the rest.
void NcclGroups::wait_for_aborts() const {
  constexpr std::chrono::milliseconds kBetweenLooks{5};
  constexpr int kMostLooks = 200;
  for (int i = 0; aborts_->running > 0 && i < kMostLooks; ++i) std::this_thread::sleep_for(kBetweenLooks);
}

/// NCCL may see first that a connection has ended, and does not say whose.
void NcclGroups::look_for_the_lost() const {
  constexpr std::chrono::milliseconds kBetweenLooks{10};
  constexpr int kLooks = 100;
  for (int i = 0; i < kLooks; ++i) {
    transport_->look();
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void NcclGroups::watch(double waited_s) {
  try {
    if (const Progress::Place place = context_->progress().current(); !place.op.empty())
      transport_->set_op(place.is_near ? fmt::format("{} or an op after it", place.op) : place.op);
    transport_->look();
    for_each_member([&](const Member& member) {
      if (member.comm == nullptr) return;
      nccl::Result result = nccl::kSuccess;
      library_->check(library_->comm_get_async_error(member.comm, &result), "asking for errors");
      if (result == nccl::kSuccess || result == nccl::kInProgress) return;
      look_for_the_lost();
      library_->check(result, "running a collective");
    });
    std::vector<int> others;
    for (int rank = 0; rank < transport_->size(); ++rank) {
      if (rank != transport_->rank()) others.push_back(rank);
    }
    transport_->require_patience(waited_s, others);
  } catch (const ranks::RankLost& error) {
    end_anyway(error.what(), error.code());
    abort();
    throw;
  } catch (const core::Error& error) {
    end_anyway(transport_->name_of(transport_->rank()) + ": " + error.what(), error.code());
    abort();
    throw;
  }
}

void NcclGroups::send(const DeviceMessage& message, const void* from, cudaStream_t stream) const {
  const Member& own = channels_.at(message.channel);
  library_->check(library_->send(from, message.bytes, nccl::kInt8, 1 - own.index, own.comm, stream), "send");
}

std::shared_ptr<const DeviceMemory> NcclGroups::aside(program::Lane lane, std::size_t bytes) {
  auto& entry = aside_[lane];
  if (entry == nullptr || entry->bytes() < bytes)
    entry = std::make_shared<const DeviceMemory>(context_->allocate(bytes));
  return entry;
}

std::shared_ptr<const Outbox> NcclGroups::outbox(const DeviceMessage& message, int place) {
  auto& entry = outboxes_[{message.channel, message.bytes, place}];
  if (entry == nullptr)
    entry = std::make_shared<const Outbox>(Outbox{context_->allocate(message.bytes), make_event()});
  return entry;
}

void NcclGroups::receive(const DeviceMessage& message, void* to, cudaStream_t stream) const {
  const Member& own = channels_.at(message.channel);
  library_->check(library_->recv(to, message.bytes, nccl::kInt8, 1 - own.index, own.comm, stream), "receive");
}

}  // namespace rooflm::backends::cuda
