// Messages between the ranks of a job: what all carriers share.
#include "ranks/transport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include "ranks/mpi_transport.h"
#include "ranks/socket_transport.h"

namespace rooflm::ranks {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// Everybody's number, in the order of ranks.
template <class T>
std::vector<T> all_of(Transport& transport, Tag tag, const T& own) {
  std::vector<T> all(static_cast<std::size_t>(transport.size()), own);
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int rank = 0; rank < transport.size(); ++rank) {
    if (rank == transport.rank()) continue;
    out.push_back({rank, bytes_of(own)});
    in.push_back({rank, std::as_writable_bytes(std::span(&all[static_cast<std::size_t>(rank)], 1))});
  }
  transport.exchange(tag, out, in);
  return all;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

int Transport::hosts() const {
  return static_cast<int>(std::set<std::string>(hosts_.begin(), hosts_.end()).size());
}

std::string Transport::name_of(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return index < hosts_.size() ? fmt::format("rank {} ({})", rank, hosts_[index])
                               : fmt::format("rank {}", rank);
}

std::string Transport::whereabouts() const {
  std::string text;
  if (step_ >= 0) text += fmt::format(", at step {}", step_);
  if (!op_.empty()) text += fmt::format(", {}", op_);
  return text;
}

void Transport::throw_lost(int rank, const std::string& why) const {
  throw RankLost(fmt::format("{}: {} {}{}", name_of(this->rank()), name_of(rank), why, whereabouts()));
}

void Transport::throw_late(const std::vector<int>& ranks) const {
  std::vector<std::string> names;
  names.reserve(ranks.size());
  for (const int rank : ranks) names.push_back(name_of(rank));
  throw RankLost(
      fmt::format("{} has waited {:g} s for {}{}: it hangs, or needs longer; --timeout of launch "
                  "(ROOFLM_TIMEOUT) is how "
                  "long ranks wait for each other",
                  name_of(rank()), patience_s_, fmt::join(names, ", "), whereabouts()));
}

Patience::Patience(Transport* transport, double seconds) : transport_(transport) {
  if (transport_ == nullptr) return;
  before_s_ = transport_->patience_s();
  transport_->set_patience(std::max(seconds, before_s_));
}

Patience::~Patience() {
  if (transport_ != nullptr) transport_->set_patience(before_s_);
}

std::unique_ptr<Transport> join(const Place& place) {
  if (place.carrier == Carrier::mpi) return join_by_mpi(place);
  if (place.carrier == Carrier::sockets) return join_by_sockets(place);
  return nullptr;
}

std::vector<std::string> share(Transport& transport, const std::string& own) {
  const std::vector<std::uint64_t> sizes = all_of(transport, kShared, std::uint64_t{own.size()});
  std::vector<std::string> all(sizes.size());
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int rank = 0; rank < transport.size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (rank == transport.rank()) continue;
    all[index].resize(sizes[index]);
    out.push_back({rank, std::as_bytes(std::span(own))});
    in.push_back({rank, std::as_writable_bytes(std::span(all[index]))});
  }
  transport.exchange(kShared, out, in);
  all[static_cast<std::size_t>(transport.rank())] = own;
  return all;
}

void meet(Transport& transport) { static_cast<void>(all_of(transport, kShared, std::int32_t{0})); }

std::vector<double> numbers(Transport& transport, double own) { return all_of(transport, kShared, own); }

double from_rank(Transport& transport, int from, double own) {
  return numbers(transport, own)[static_cast<std::size_t>(from)];
}

int most(Transport& transport, int own) { return std::ranges::max(all_of(transport, kStop, own)); }

}  // namespace rooflm::ranks
