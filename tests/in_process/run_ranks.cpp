// All ranks in one process, one thread each.
#include "tests/in_process/run_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/comm/add_up.h"
#include "core/error.h"

namespace rooflm::backends::comm {
namespace {

using core::DType;
using program::Group;
using program::Mesh;
using program::Part;

using Transfers = Communicator::Transfers;

/// Meeting point of the ranks of one group: a barrier, and the transfers that each rank published.
struct Meeting {
  std::vector<Transfers> laid;
  int arrived = 0;
  std::int64_t round = 0;
};

/// State shared by all threads, with one lock that is held only briefly.
class World {
 public:
  explicit World(const Mesh& mesh) : mesh_(mesh) {}

  [[nodiscard]] const Mesh& mesh() const { return mesh_; }

  /// Publishes `own` as rank `index` of `members` and waits until all ranks have. Returns all transfers in
  /// rank order; they stay valid until each rank has called `leave`.
  std::vector<Transfers> meet(Group group, const std::vector<int>& members, std::size_t index,
                              Transfers own) {
    std::unique_lock lock(mutex_);
    Meeting& meeting = meetings_[{group, members.front()}];
    meeting.laid.resize(members.size());
    meeting.laid[index] = own;
    wait(lock, meeting, members.size());
    return meeting.laid;
  }
  /// Waits until all ranks of the group have arrived.
  void leave(Group group, const std::vector<int>& members) {
    std::unique_lock lock(mutex_);
    wait(lock, meetings_[{group, members.front()}], members.size());
  }

  using Address = std::tuple<int, int, std::int64_t, int>;  ///< from, to, channel, micro-batch
  void post(const Address& address, std::vector<std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    posted_[address].push_back(std::move(bytes));
    changed_.notify_all();
  }
  std::vector<std::byte> fetch(const Address& address) {
    std::unique_lock lock(mutex_);
    std::deque<std::vector<std::byte>>& messages = posted_[address];
    changed_.wait(lock, [&] { return !messages.empty() || has_stopped_; });
    if (messages.empty()) throw_stopped();
    std::vector<std::byte> bytes = std::move(messages.front());
    messages.pop_front();
    return bytes;
  }

  /// Wakes all waiting ranks for good.
  void stop() {
    const std::lock_guard lock(mutex_);
    has_stopped_ = true;
    changed_.notify_all();
  }

 private:
  [[noreturn]] static void throw_stopped() {
    throw core::Unavailable("another rank has ended before this one");
  }
  void wait(std::unique_lock<std::mutex>& lock, Meeting& meeting, std::size_t count) {
    if (has_stopped_) throw_stopped();
    if (++meeting.arrived == static_cast<int>(count)) {
      meeting.arrived = 0;
      ++meeting.round;
      return changed_.notify_all();
    }
    const std::int64_t round = meeting.round;
    changed_.wait(lock, [&] { return meeting.round != round || has_stopped_; });
    if (meeting.round == round) throw_stopped();
  }

  Mesh mesh_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<Group, int>, Meeting> meetings_;  ///< by group and its lowest rank
  std::map<Address, std::deque<std::vector<std::byte>>> posted_;
  bool has_stopped_ = false;
};

class Rank final : public Communicator {
 public:
  Rank(std::shared_ptr<World> world, int number) : world_(std::move(world)), number_(number) {}

  void all_reduce(Group group, Transfers own) override {
    const auto members = members_of(group);
    const auto all = world_->meet(group, members, index_in(members), own);
    // Other ranks may still read what this rank's results will overwrite.
    scratch_.resize(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      scratch_[i].resize(bytes_of(own[i].dtype, own[i].elements));
      add_up(from_of(all, i), own[i].dtype, {0, own[i].elements}, scratch_[i].data(), false);
    }
    world_->leave(group, members);
    for (std::size_t i = 0; i < own.size(); ++i) copy(own[i].to, scratch_[i].data(), scratch_[i].size());
  }

  void all_gather(Group group, Transfers own) override {
    const auto members = members_of(group);
    const auto all = world_->meet(group, members, index_in(members), own);
    for (std::size_t i = 0; i < own.size(); ++i) {
      for (std::size_t rank = 0; rank < members.size(); ++rank) {
        const Part part = part_of(own[i], members, rank);
        copy(static_cast<std::byte*>(own[i].to) + bytes_of(own[i].dtype, part.begin), all[rank][i].from,
             bytes_of(own[i].dtype, part.size()));
      }
    }
    world_->leave(group, members);
  }

  void reduce_scatter(Group group, Transfers own, bool accumulate) override {
    const auto members = members_of(group);
    const std::size_t index = index_in(members);
    const auto all = world_->meet(group, members, index, own);
    for (std::size_t i = 0; i < own.size(); ++i)
      add_up(from_of(all, i), own[i].dtype, part_of(own[i], members, index), own[i].to, accumulate);
    world_->leave(group, members);
  }

  void pass_on(Group group, Transfers own) override {
    const auto members = members_of(group);
    const std::size_t index = index_in(members);
    const auto all = world_->meet(group, members, index, own);
    const Transfers before = all[(index + members.size() - 1) % members.size()];
    for (std::size_t i = 0; i < own.size(); ++i)
      copy(own[i].to, before[i].from, bytes_of(own[i].dtype, own[i].elements));
    world_->leave(group, members);
  }

  void send(const Message& message, const void* from, std::int64_t bytes) override {
    const auto* data = static_cast<const std::byte*>(from);
    world_->post({number_, peer_of(message), message.channel, message.micro_batch}, {data, data + bytes});
  }

  void receive(const Message& message, void* to, std::int64_t bytes) override {
    const auto sent = world_->fetch({peer_of(message), number_, message.channel, message.micro_batch});
    if (static_cast<std::int64_t>(sent.size()) != bytes) {
      throw std::logic_error(
          fmt::format("rank {} receives {} bytes, {} were sent", number_, bytes, sent.size()));
    }
    std::memcpy(to, sent.data(), sent.size());
  }

 private:
  [[nodiscard]] std::vector<int> members_of(Group group) const {
    return world_->mesh().members(number_, group);
  }
  [[nodiscard]] std::size_t index_in(const std::vector<int>& members) const {
    return static_cast<std::size_t>(std::find(members.begin(), members.end(), number_) - members.begin());
  }
  /// The addresses of tensor i on all ranks.
  static std::vector<const void*> from_of(const std::vector<Transfers>& all, std::size_t i) {
    std::vector<const void*> from;
    from.reserve(all.size());
    for (const Transfers transfers : all) from.push_back(transfers[i].from);
    return from;
  }
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  [[nodiscard]] int peer_of(const Message& message) const {
    return members_of(message.group).at(static_cast<std::size_t>(message.peer));
  }
  static Part part_of(const Transfer& t, const std::vector<int>& members, std::size_t index) {
    return program::part_of(t.elements, static_cast<int>(members.size()), static_cast<int>(index), t.cut);
  }
  static std::size_t bytes_of(DType dtype, std::int64_t elements) {
    return static_cast<std::size_t>(elements) * core::size_of(dtype);
  }

  std::shared_ptr<World> world_;
  int number_;
  std::vector<std::vector<std::byte>> scratch_;
};

}  // namespace

void run_ranks(const Mesh& mesh,
               const std::function<void(int rank, const std::shared_ptr<Communicator>& communicator)>& body) {
  const auto world = std::make_shared<World>(mesh);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(mesh.size()));
  for (int number = 0; number < mesh.size(); ++number) {
    threads.emplace_back([&, number] {
      try {
        body(number, std::make_shared<Rank>(world, number));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (first == nullptr) first = std::current_exception();
        world->stop();
      }
    });
  }
  threads.clear();  // joins them
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace rooflm::backends::comm
