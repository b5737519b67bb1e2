// Messages between the ranks of a job: what all carriers share.
#include "ranks/transport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "core/printable.h"
#include "ranks/gather.h"
#include "ranks/mpi_transport.h"
#include "ranks/proof.h"
#include "ranks/socket_transport.h"
#include "ranks/speaker.h"

namespace rooflm::ranks {
namespace {

/// Everybody's number, in the order of ranks.
template <class T>
std::vector<T> all_of(Transport& transport, Tag tag, const T& own) {
  std::vector<int> ranks(static_cast<std::size_t>(transport.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return gather(transport, tag, ranks, own);
}

constexpr const char* kAdvice = "--timeout of launch (ROOFLM_TIMEOUT) is how long ranks wait for each other";

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

void Transport::set_hosts(const std::vector<std::string>& hosts) {
  hosts_.clear();
  for (const std::string& host : hosts) hosts_.push_back(core::printable(host));
}

int Transport::hosts() const {
  return static_cast<int>(std::set<std::string>(hosts_.begin(), hosts_.end()).size());
}

int Transport::ranks_here() const {
  const auto own = static_cast<std::size_t>(rank());
  if (own >= hosts_.size()) return place_.local_size;
  return static_cast<int>(std::ranges::count(hosts_, hosts_[own]));
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

std::string Transport::names_of(const std::vector<int>& ranks) const {
  std::vector<std::string> names;
  names.reserve(ranks.size());
  for (const int rank : ranks) names.push_back(name_of(rank));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<int> Transport::silent_among(const std::vector<int>& ranks) const {
  std::vector<int> silent;
  const auto now = std::chrono::steady_clock::now();
  for (const int rank : ranks) {
    double silent_s = pulse_->silent_s(rank);
    // Within a host nothing is in the way of a pulse: one that never came there was never sent.
    const bool must_come = must_come_[static_cast<std::size_t>(rank)];
    if (silent_s < 0 && must_come) silent_s = std::chrono::duration<double>(now - pulse_began_).count();
    if (silent_s >= place_.patience_s) silent.push_back(rank);
  }
  return silent;
}

void Transport::require_patience(double waited_s, const std::vector<int>& awaited) const {
  if (waited_s >= patience_s_) {
    throw RankLost(fmt::format("{} has waited {:g} s for {}{}: it hangs, or needs longer; {}",
                               name_of(rank()), patience_s_, names_of(awaited), whereabouts(), kAdvice));
  }
  if (!hears_silence() || waited_s < place_.patience_s) return;
  const std::vector<int> silent = silent_among(awaited);
  if (silent.empty()) return;
  throw RankLost(fmt::format("{} waits for {}, which has done nothing for {:g} s{}: it hangs; {}",
                             name_of(rank()), names_of(silent), place_.patience_s, whereabouts(), kAdvice));
}

void Transport::look_around() {
  look();
  if (pulse_ == nullptr) return;
  pulse_->set_working();
  std::vector<int> others;
  for (int other = 0; other < size(); ++other) {
    if (other != rank()) others.push_back(other);
  }
  const std::vector<int> silent = silent_among(others);
  if (silent.empty()) return;
  throw RankLost(fmt::format("{}: {} has done nothing for {:g} s{}: it hangs; {}", name_of(rank()),
                             names_of(silent), place_.patience_s, whereabouts(), kAdvice));
}

std::vector<sockaddr_in> Transport::addresses() const {
  return std::vector<sockaddr_in>(static_cast<std::size_t>(size()));
}

void Transport::begin_pulse() {
  const bool is_one_host = hosts() <= 1;
  std::unique_ptr<Pulse> pulse;
  try {
    pulse = std::make_unique<Pulse>(rank(), size(), is_one_host);
  } catch (const core::Unavailable&) {
    pulse = nullptr;  // others wait for this rank as long as they may
  }
  const std::vector<double> ports = numbers(*this, pulse == nullptr ? 0 : pulse->port());
  // UDP has no connections that were proved: pulses carry what only these ranks were told.
  const Nonce nonce = make_nonce();
  std::uint64_t own_job = 0;
  std::memcpy(&own_job, nonce.data(), sizeof own_job);
  const std::uint64_t job = all_of(*this, kShared, own_job).front();
  if (pulse == nullptr) return;
  std::vector<sockaddr_in> others = addresses();
  must_come_.assign(others.size(), false);
  pulse_began_ = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < others.size(); ++i) {
    const bool is_here =
        is_one_host || (i < hosts_.size() && hosts_[i] == hosts_[static_cast<std::size_t>(rank())]);
    if (is_here) {
      others[i].sin_family = AF_INET;
      others[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    must_come_[i] = is_here && ports[i] > 0;
    if (others[i].sin_family == AF_INET) others[i].sin_port = htons(static_cast<std::uint16_t>(ports[i]));
  }
  // A few pulses may be lost, or late.
  constexpr double kPulses = 8;
  constexpr double kLongestPause = 200;
  constexpr double kMs = 1e3;
  const double pause = std::clamp(kMs * place_.patience_s / kPulses, 1.0, kLongestPause);
  pulse->begin(others, job, std::chrono::milliseconds(static_cast<int>(pause)));
  pulse_ = std::move(pulse);
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
  std::unique_ptr<Transport> transport;
  if (place.carrier == Carrier::mpi) transport = join_by_mpi(place);
  if (place.carrier == Carrier::sockets) transport = join_by_sockets(place);
  if (auto* const speaker = dynamic_cast<Speaker*>(transport.get())) speaker->share_terminals();
  if (transport != nullptr) transport->begin_pulse();
  return transport;
}

std::vector<std::string> share(Transport& transport, const std::string& own) {
  constexpr std::uint64_t kMostOfText = std::uint64_t{1} << 30U;
  const std::vector<std::uint64_t> sizes = all_of(transport, kShared, std::uint64_t{own.size()});
  std::vector<std::string> all(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > kMostOfText)
      transport.throw_lost(static_cast<int>(i),
                           fmt::format("announced a text of {} bytes, more than {}", sizes[i], kMostOfText));
  }
  // In pieces: memory follows what has arrived.
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20U;
  for (std::uint64_t begin = 0; begin < std::ranges::max(sizes); begin += kPiece) {
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (int rank = 0; rank < transport.size(); ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      if (rank == transport.rank()) continue;
      if (begin < own.size())
        out.push_back(
            {rank, std::as_bytes(std::span(own).subspan(begin, std::min(kPiece, own.size() - begin)))});
      if (begin >= sizes[index]) continue;
      all[index].resize(std::min(sizes[index], begin + kPiece));
      in.push_back({rank, std::as_writable_bytes(std::span(all[index]).subspan(begin))});
    }
    transport.exchange(kShared, out, in);
  }
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
