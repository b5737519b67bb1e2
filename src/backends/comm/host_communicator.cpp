// Collectives between processes, in host memory: each rank receives its part from all others and sums it;
// then all ranks exchange the sums.
#include "backends/comm/host_communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "backends/comm/add_up.h"

namespace rooflm::backends::comm {
namespace {

using program::Group;
using program::Mesh;
using program::Part;
using ranks::Incoming;
using ranks::Outgoing;
using ranks::Tag;

Tag tag_of(Group group) { return ranks::kGroups + static_cast<Tag>(group); }

/// A tag per channel and micro-batch; only messages with the same tag keep their order. Channels go forward
/// from 0 and back from -1.
Tag tag_of(const Message& message) {
  constexpr std::int64_t kMicroBatches = 1 << 12;
  constexpr std::int64_t kMostChannels = (1 << 18) - 1;
  const std::int64_t channel = message.channel >= 0 ? 2 * message.channel : -2 * message.channel - 1;
  if (channel > kMostChannels) throw std::logic_error("a channel beyond the tags of messages");
  return ranks::kFirstChannel +
         static_cast<Tag>(channel * kMicroBatches + message.micro_batch % kMicroBatches);
}

std::size_t bytes_of(const Transfer& t, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * core::size_of(t.dtype);
}

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(std::shared_ptr<ranks::Transport> transport, const Mesh& mesh)
      : transport_(std::move(transport)), mesh_(mesh) {}

  void begin(std::string_view op) override { transport_->set_op(op); }

  void all_reduce(Group group, Transfers own) override {
    const Team team(*this, group);
    // Parts of any size will do: only the order of the sum matters.
    std::vector<Transfer> cut(own.begin(), own.end());
    for (Transfer& t : cut) t.cut = {.unit = program::kPartUnit};
    std::vector<std::vector<std::byte>> sums(cut.size());
    std::vector<void*> to;
    for (std::size_t i = 0; i < cut.size(); ++i) {
      sums[i].resize(bytes_of(cut[i], team.part_of(cut[i], team.index).size()));
      to.push_back(sums[i].data());
    }
    add_parts(team, cut, to, false);
    gather_parts(team, cut, {to.begin(), to.end()});
  }

  void all_gather(Group group, Transfers own) override {
    std::vector<const void*> parts;
    for (const Transfer& t : own) parts.push_back(t.from);
    gather_parts(Team(*this, group), own, parts);
  }

  void reduce_scatter(Group group, Transfers own, bool accumulate) override {
    std::vector<void*> to;
    for (const Transfer& t : own) to.push_back(t.to);
    add_parts(Team(*this, group), own, to, accumulate);
  }

  /// Sends and receives concurrently, so a ring of waiting neighbours cannot deadlock.
  void pass_on(Group group, Transfers own) override {
    const Team team(*this, group);
    const std::size_t ranks = team.members.size();
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (const Transfer& t : own) {
      const std::size_t bytes = bytes_of(t, t.elements);
      out.push_back({team.members[(team.index + 1) % ranks], {static_cast<const std::byte*>(t.from), bytes}});
      in.push_back({team.members[(team.index + ranks - 1) % ranks], {static_cast<std::byte*>(t.to), bytes}});
    }
    transport_->exchange(team.tag, out, in);
  }

  void send(const Message& message, const void* from, std::int64_t bytes) override {
    transport_->send(peer_of(message), tag_of(message),
                     {static_cast<const std::byte*>(from), static_cast<std::size_t>(bytes)});
  }

  void receive(const Message& message, void* to, std::int64_t bytes) override {
    const Incoming incoming{peer_of(message), {static_cast<std::byte*>(to), static_cast<std::size_t>(bytes)}};
    transport_->exchange(tag_of(message), {}, {&incoming, 1});
  }

 private:
  /// The ranks of a group.
  struct Team {
    std::vector<int> members;
    std::size_t index = 0;  ///< index of this rank
    Tag tag = 0;
    Team(const HostCommunicator& own, Group group)
        : members(own.mesh_.members(own.transport_->rank(), group)), tag(tag_of(group)) {
      index = static_cast<std::size_t>(std::ranges::find(members, own.transport_->rank()) - members.begin());
    }
    [[nodiscard]] Part part_of(const Transfer& t, std::size_t member) const {
      return program::part_of(t.elements, static_cast<int>(members.size()), static_cast<int>(member), t.cut);
    }
  };

  /// to[i] = (to[i] +) the sum over ranks of this rank's part of tensor i.
  void add_parts(const Team& team, Transfers own, const std::vector<void*>& to, bool accumulate) {
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    std::vector<std::vector<std::byte>> arrived(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      const std::size_t bytes = bytes_of(own[i], team.part_of(own[i], team.index).size());
      arrived[i].resize(bytes * team.members.size());
      for (std::size_t k = 0; k < team.members.size(); ++k) {
        if (k == team.index) continue;
        out.push_back({team.members[k], bytes_in(own[i], team.part_of(own[i], k))});
        in.push_back({team.members[k], std::span(arrived[i]).subspan(k * bytes, bytes)});
      }
    }
    transport_->exchange(team.tag, out, in);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const Part mine = team.part_of(own[i], team.index);
      const std::size_t bytes = bytes_of(own[i], mine.size());
      std::vector<const void*> from(team.members.size());
      for (std::size_t k = 0; k < from.size(); ++k) from[k] = arrived[i].data() + k * bytes;
      from[team.index] = bytes_in(own[i], mine).data();
      if (bytes > 0) add_up(from, own[i].dtype, {0, mine.size()}, to[i], accumulate);
    }
  }

  /// Gathers tensor i from all ranks' parts; `parts` has this rank's.
  void gather_parts(const Team& team, Transfers own, const std::vector<const void*>& parts) {
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const std::span mine(static_cast<const std::byte*>(parts[i]),
                           bytes_of(own[i], team.part_of(own[i], team.index).size()));
      for (std::size_t k = 0; k < team.members.size(); ++k) {
        const Part place = team.part_of(own[i], k);
        const std::span to(static_cast<std::byte*>(own[i].to) + bytes_of(own[i], place.begin),
                           bytes_of(own[i], place.size()));
        if (k != team.index) {
          out.push_back({team.members[k], mine});
          in.push_back({team.members[k], to});
        } else if (!mine.empty()) {
          std::memmove(to.data(), mine.data(), mine.size());
        }
      }
    }
    transport_->exchange(team.tag, out, in);
  }

  static std::span<const std::byte> bytes_in(const Transfer& t, Part part) {
    return {static_cast<const std::byte*>(t.from) + bytes_of(t, part.begin), bytes_of(t, part.size())};
  }

  [[nodiscard]] int peer_of(const Message& message) const {
    return mesh_.members(transport_->rank(), message.group).at(static_cast<std::size_t>(message.peer));
  }

  std::shared_ptr<ranks::Transport> transport_;
  Mesh mesh_;
};

}  // namespace

std::shared_ptr<Communicator> make_host_communicator(std::shared_ptr<ranks::Transport> transport,
                                                     const Mesh& mesh) {
  return std::make_shared<HostCommunicator>(std::move(transport), mesh);
}

}  // namespace rooflm::backends::comm
