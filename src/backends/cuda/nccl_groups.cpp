// The groups of ranks that a GPU shares work with, and their collectives through NCCL.
#include "backends/cuda/nccl_groups.h"

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

#include "backends/cuda/nccl_calls.h"
#include "core/error.h"

namespace rooflm::backends::cuda {
namespace {

using program::Group;
using program::Part;

/// Sums of so few are NCCL's own in any way: a loss, a norm, which nobody splits.
constexpr std::int64_t kFewElements = 16;

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
    members_.at(static_cast<std::size_t>(group)) = connect(
        mesh.members(transport_->rank(), group), fmt::format("the group '{}'", program::name_of(group)));
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
NcclGroups::Member NcclGroups::connect(const std::vector<int>& ranks, const std::string& what,
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

void NcclGroups::all_reduce(Group group, const std::vector<DeviceTransfer>& whole,
                            cudaStream_t stream) const {
  const auto is_short = [](const DeviceTransfer& t) { return t.elements < kFewElements; };
  if (adds_up(group) && !std::ranges::all_of(whole, is_short)) {
    all_reduce_copies(group, whole, stream);
    return;
  }
  const Member& own = member(group);
  Grouped calls(*library_);
  for (const DeviceTransfer& t : whole) {
    library_->check(library_->all_reduce(t.from, t.to, count_of(t.elements), type_of(t.dtype), nccl::kSum,
                                         own.comm, stream),
                    "all_reduce");
  }
  calls.end("all_reduce");
}

void NcclGroups::all_gather(Group group, const std::vector<DeviceTransfer>& whole,
                            cudaStream_t stream) const {
  if (group == Group::data && way_ == CollectiveWay::peer_memory) {
    all_gather_mapped(whole, stream);
    return;
  }
  const Member& own = member(group);
  Grouped calls(*library_);
  for (const DeviceTransfer& t : whole) {
    if (is_even(t, own.ranks)) {
      library_->check(library_->all_gather(t.from, t.to, count_of(t.elements / own.ranks), type_of(t.dtype),
                                           own.comm, stream),
                      "all_gather");
      continue;
    }
    for (int root = 0; root < own.ranks; ++root) {
      const Part part = part_of(t, own.ranks, root);
      if (part.size() == 0) continue;
      auto* to = static_cast<std::byte*>(t.to) + bytes_of(t, part.begin);
      const void* from = root == own.index ? t.from : to;
      library_->check(
          library_->broadcast(from, to, count_of(part.size()), type_of(t.dtype), root, own.comm, stream),
          "all_gather");
    }
  }
  calls.end("all_gather");
}

void NcclGroups::reduce_scatter(Group group, const std::vector<DeviceTransfer>& whole,
                                cudaStream_t stream) const {
  if (adds_up(group)) {
    reduce_scatter_copies(group, whole, stream, false);
    return;
  }
  const Member& own = member(group);
  Grouped calls(*library_);
  for (const DeviceTransfer& t : whole) {
    if (is_even(t, own.ranks)) {
      library_->check(library_->reduce_scatter(t.from, t.to, count_of(t.elements / own.ranks),
                                               type_of(t.dtype), nccl::kSum, own.comm, stream),
                      "reduce_scatter");
      continue;
    }
    for (int root = 0; root < own.ranks; ++root) {
      const Part part = part_of(t, own.ranks, root);
      if (part.size() == 0) continue;
      library_->check(library_->reduce(at(t, t.from, part.begin), t.to, count_of(part.size()),
                                       type_of(t.dtype), nccl::kSum, root, own.comm, stream),
                      "reduce_scatter");
    }
  }
  calls.end("reduce_scatter");
}

void NcclGroups::pass_on(Group group, const std::vector<DeviceTransfer>& whole, cudaStream_t stream) const {
  const Member& own = member(group);
  Grouped calls(*library_);
  for (const DeviceTransfer& t : whole) {
    const std::size_t bytes = bytes_of(t, t.elements);
    library_->check(library_->send(t.from, bytes, nccl::kInt8, (own.index + 1) % own.ranks, own.comm, stream),
                    "pass_on");
    library_->check(
        library_->recv(t.to, bytes, nccl::kInt8, (own.index + own.ranks - 1) % own.ranks, own.comm, stream),
        "pass_on");
  }
  calls.end("pass_on");
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
