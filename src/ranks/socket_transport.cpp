// Messages over TCP, from each rank to each other.
#include "ranks/socket_transport.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "core/printable.h"

namespace rooflm::ranks {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

constexpr Tag kBye = -1, kAbandoned = -2;

/// The longest message, and the longest reason of a rank that fails.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40U, kMostOfReason = std::uint64_t{1} << 16U;
/// Memory that a message nobody waits for yet gets at first; more follows with what has arrived.
constexpr std::uint64_t kFirstBytes = std::uint64_t{1} << 20U;

/// Stands before each message.
struct Header {
  std::int64_t tag = 0;
  std::uint64_t bytes = 0;
};

/// A message on its way out.
struct Leaving {
  Header header{};
  std::span<const std::byte> bytes{};
  Bytes owned{};         ///< where nobody else keeps them
  std::size_t sent = 0;  ///< header included
  [[nodiscard]] std::size_t size() const { return sizeof header + bytes.size(); }
};

struct Peer {
  core::Descriptor socket;
  std::deque<Leaving> out;
  /// What is being read: a header first, then bytes.
  Header header;
  std::size_t got = 0;
  std::span<std::byte> into;
  Bytes unexpected;
  bool is_posted = false;                                   ///< `into` is somebody's memory
  std::deque<std::pair<Tag, std::span<std::byte>>> posted;  ///< that somebody waits for
  std::map<Tag, std::deque<Bytes>> kept;                    ///< that nobody has waited for yet
  bool has_left = false;
  /// Why nothing more comes from it; "" while it lives, and when it said goodbye.
  std::string lost;
};

class SocketTransport final : public Transport {
 public:
  SocketTransport(const Place& place, Connections connections)
      : Transport(place), peers_(connections.sockets.size()) {
    set_hosts(connections.hosts);
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      peers_[i].socket = std::move(connections.sockets[i]);
      if (has_socket(i)) ::fcntl(peers_[i].socket.get(), F_SETFL, O_NONBLOCK);
    }
  }

  void exchange(Tag tag, std::span<const Outgoing> out, std::span<const Incoming> in) override {
    for (const Incoming& incoming : in) post(incoming, tag);
    for (const Outgoing& outgoing : out) {
      if (!outgoing.bytes.empty())
        enqueue(outgoing.to, {.header = header_of(tag, outgoing.bytes), .bytes = outgoing.bytes});
    }
    const Waiting waiting(*this);
    auto since = Clock::now();
    while (open_in_ > 0 || open_out_ > 0) {
      // Only here: what came before a rank ended counts, and this one may know by it what to say itself.
      throw_if_lost();
      if (progress(left_ms(since))) {
        since = Clock::now();
      } else if (const double waited_s = seconds_since(since); waited_s >= shortest_patience_s()) {
        require_patience(waited_s, awaited());
      }
    }
  }

  void send(int to, Tag tag, std::span<const std::byte> bytes) override {
    Leaving leaving{.header = header_of(tag, bytes), .owned = {bytes.begin(), bytes.end()}};
    leaving.bytes = leaving.owned;
    enqueue(to, std::move(leaving));
  }

  void look() override {
    static_cast<void>(progress(0));
    throw_if_lost();
  }

  void leave() override {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (has_socket(i)) enqueue(static_cast<int>(i), {.header = {.tag = kBye}});
    }
    const auto since = Clock::now();
    const auto is_leaving = [](const Peer& peer) { return !peer.out.empty(); };
    while (std::ranges::any_of(peers_, is_leaving) && left_ms(since) > 0) {
      if (!progress(left_ms(since))) break;
    }
  }

  void abandon(const std::string& why) noexcept override {
    try {
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        if (!has_socket(i) || !peers_[i].out.empty()) continue;
        Leaving leaving;
        leaving.owned.resize(std::min<std::size_t>(why.size(), kMostOfReason));
        std::memcpy(leaving.owned.data(), why.data(), leaving.owned.size());
        leaving.bytes = leaving.owned;
        leaving.header = header_of(kAbandoned, leaving.bytes);
        peers_[i].out.push_back(std::move(leaving));
        static_cast<void>(write_to(peers_[i]));
      }
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): others find out by themselves
    }
  }

 private:
  static constexpr std::string_view kEnded = "has ended";

  [[nodiscard]] bool has_socket(std::size_t rank) const { return peers_[rank].socket.get() >= 0; }
  static Header header_of(Tag tag, std::span<const std::byte> bytes) {
    return {.tag = tag, .bytes = bytes.size()};
  }
  static double seconds_since(Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  }
  /// Until the patience is at its end, or it is time to look who is silent.
  [[nodiscard]] int left_ms(Clock::time_point since) const {
    constexpr double kMs = 1e3;
    constexpr double kLook = 200;
    const double left = kMs * (patience_s() - seconds_since(since));
    return static_cast<int>(std::clamp(left, 0.0, hears_silence() ? kLook : 1e9));
  }

  [[nodiscard]] std::vector<sockaddr_in> addresses() const override {
    std::vector<sockaddr_in> all(peers_.size());
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      sockaddr_storage any{};
      socklen_t length = sizeof any;
      const bool is_known = has_socket(i) && ::getpeername(peers_[i].socket.get(),
                                                           reinterpret_cast<sockaddr*>(&any), &length) == 0;
      if (is_known && any.ss_family == AF_INET) std::memcpy(&all[i], &any, sizeof all[i]);
      all[i].sin_port = 0;
    }
    return all;
  }

  void post(const Incoming& incoming, Tag tag) {
    if (incoming.bytes.empty()) return;
    Peer& peer = peers_[static_cast<std::size_t>(incoming.from)];
    if (const auto kept = peer.kept.find(tag); kept != peer.kept.end() && !kept->second.empty()) {
      const Bytes& bytes = kept->second.front();
      require_size(incoming.from, bytes.size(), incoming.bytes.size());
      std::memcpy(incoming.bytes.data(), bytes.data(), bytes.size());
      kept->second.pop_front();
      return;
    }
    peer.posted.emplace_back(tag, incoming.bytes);
    ++open_in_;
  }

  void enqueue(int to, Leaving leaving) {
    Peer& peer = peers_[static_cast<std::size_t>(to)];
    if (leaving.owned.empty()) ++open_out_;
    peer.out.push_back(std::move(leaving));
    if (peer.out.size() == 1 && !write_to(peer)) lose_while_writing(peer);
  }

  /// Moves what can be moved within so many milliseconds; whether anything was.
  bool progress(int timeout_ms) {
    std::vector<pollfd> waited;
    std::vector<std::size_t> ranks;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (!has_socket(i)) continue;
      const short events = peers_[i].out.empty() ? POLLIN : POLLIN | POLLOUT;
      waited.push_back({.fd = peers_[i].socket.get(), .events = events, .revents = 0});
      ranks.push_back(i);
    }
    const bool has_news = ::poll(waited.data(), waited.size(), timeout_ms) > 0;
    for (std::size_t k = 0; has_news && k < waited.size(); ++k) {
      Peer& peer = peers_[ranks[k]];
      if ((waited[k].revents & ~POLLOUT) != 0 && !read_from(peer)) lose(peer);
      if ((waited[k].revents & POLLOUT) != 0 && has_socket(ranks[k]) && !write_to(peer))
        lose_while_writing(peer);
    }
    for (const Peer& peer : peers_) {
      if (peer.has_left && !peer.posted.empty()) throw_lost(rank_of(peer), "has finished its work before");
    }
    return has_news;
  }

  [[nodiscard]] int rank_of(const Peer& peer) const { return static_cast<int>(&peer - peers_.data()); }

  /// The connection is closed.
  void lose(Peer& peer) {
    peer.socket = core::Descriptor();
    open_out_ -=
        std::ranges::count_if(peer.out, [](const Leaving& leaving) { return leaving.owned.empty(); });
    peer.out.clear();
    if (!peer.has_left && peer.lost.empty()) peer.lost = kEnded;
  }

  /// What it said last may have come already.
  void lose_while_writing(Peer& peer) {
    static_cast<void>(read_from(peer));
    lose(peer);
  }

  /// One that said why goes before those that have only ended: they may have ended because of it.
  void throw_if_lost() {
    const auto is_lost = [](const Peer& peer) { return !peer.lost.empty(); };
    if (std::ranges::none_of(peers_, is_lost)) return;
    static_cast<void>(progress(0));
    const auto said_why = [](const Peer& peer) { return !peer.lost.empty() && peer.lost != kEnded; };
    auto first = std::ranges::find_if(peers_, said_why);
    if (first == peers_.end()) first = std::ranges::find_if(peers_, is_lost);
    throw_lost(rank_of(*first), first->lost);
  }

  /// False when the connection is closed.
  static bool is_alive(ssize_t count) {
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
  }

  bool write_to(Peer& peer) {
    while (!peer.out.empty()) {
      Leaving& next = peer.out.front();
      const bool in_header = next.sent < sizeof next.header;
      const auto header = std::as_bytes(std::span(&next.header, 1)).subspan(in_header ? next.sent : 0);
      const auto bytes = in_header ? header : next.bytes.subspan(next.sent - sizeof next.header);
      const int more = in_header && !next.bytes.empty() ? MSG_MORE : 0;
      const ssize_t sent = ::send(peer.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | more);
      if (sent < 0) return is_alive(sent);
      next.sent += static_cast<std::size_t>(sent);
      if (next.sent < next.size()) continue;
      if (next.owned.empty()) --open_out_;
      peer.out.pop_front();
    }
    return true;
  }

  bool read_from(Peer& peer) {
    while (true) {
      const bool in_header = peer.got < sizeof peer.header;
      const auto to = in_header ? std::as_writable_bytes(std::span(&peer.header, 1)).subspan(peer.got)
                                : peer.into.subspan(peer.got - sizeof peer.header);
      const ssize_t got = ::recv(peer.socket.get(), to.data(), to.size(), 0);
      if (got <= 0) return is_alive(got);
      peer.got += static_cast<std::size_t>(got);
      if (peer.got == sizeof peer.header && !begin_message(peer)) return false;
      if (peer.got == sizeof peer.header + peer.header.bytes) {
        end_message(peer);
      } else if (peer.got == sizeof peer.header + peer.into.size()) {
        grow(peer);
      }
    }
  }

  /// What somebody waits for first under that tag.
  static auto find_posted(Peer& peer, Tag tag) {
    return std::ranges::find(peer.posted, tag, &std::pair<Tag, std::span<std::byte>>::first);
  }

  /// False where no rank sends such a message.
  bool begin_message(Peer& peer) {
    const auto most = peer.header.tag == kAbandoned ? kMostOfReason : kMostBytes;
    if (peer.header.bytes > most) {
      peer.lost = fmt::format("sent a message of {} bytes, more than the {} that a rank may send",
                              peer.header.bytes, most);
      return false;
    }
    const auto found = find_posted(peer, static_cast<Tag>(peer.header.tag));
    peer.is_posted = found != peer.posted.end();
    if (peer.is_posted) {
      require_size(rank_of(peer), peer.header.bytes, found->second.size());
      peer.into = found->second;
      peer.posted.erase(found);
    } else {
      peer.unexpected.clear();
      grow(peer);
    }
    return true;
  }

  /// Memory for as many bytes again as have come, so that a length alone takes none.
  static void grow(Peer& peer) {
    const std::uint64_t size = std::max<std::uint64_t>(kFirstBytes, 2 * peer.unexpected.size());
    peer.unexpected.resize(std::min(peer.header.bytes, size));
    peer.into = peer.unexpected;
  }

  void end_message(Peer& peer) {
    const auto tag = static_cast<Tag>(peer.header.tag);
    peer.got = 0;
    if (peer.is_posted) {
      --open_in_;
    } else if (tag == kBye) {
      peer.has_left = true;
    } else if (tag == kAbandoned) {
      const std::string why(reinterpret_cast<const char*>(peer.unexpected.data()), peer.unexpected.size());
      peer.lost = fmt::format("has failed ({})", core::printable(why, core::kUnlimited));
    } else {
      keep(peer, tag);
    }
  }

  /// A message that nobody waited for when it began: somebody may by now.
  void keep(Peer& peer, Tag tag) {
    Bytes bytes = std::exchange(peer.unexpected, {});
    const auto found = find_posted(peer, tag);
    if (found == peer.posted.end()) return peer.kept[tag].push_back(std::move(bytes));
    require_size(rank_of(peer), bytes.size(), found->second.size());
    std::memcpy(found->second.data(), bytes.data(), bytes.size());
    peer.posted.erase(found);
    --open_in_;
  }

  void require_size(int from, std::size_t sent, std::size_t expected) const {
    if (sent == expected) return;
    throw std::logic_error(fmt::format("{} sent {} bytes, {} waits for {}{}", name_of(from), sent,
                                       name_of(rank()), expected, whereabouts()));
  }

  /// Who has not sent, or not taken, what this rank waits for.
  [[nodiscard]] std::vector<int> awaited() const {
    std::vector<int> ranks;
    for (const Peer& peer : peers_) {
      const bool is_read = peer.is_posted && peer.got > 0;
      if (!peer.posted.empty() || !peer.out.empty() || is_read) ranks.push_back(rank_of(peer));
    }
    return ranks;
  }

  std::vector<Peer> peers_;  ///< by rank; this one has no socket
  std::int64_t open_in_ = 0, open_out_ = 0;
};

}  // namespace

std::unique_ptr<Transport> join_by_sockets(const Place& place) {
  // Ranks of a launch that is killed would have nobody who passes signals on to them.
  if (place.is_launched) ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  return talk_over(place, connect_all(place));
}

std::unique_ptr<Transport> talk_over(const Place& place, Connections connections) {
  return std::make_unique<SocketTransport>(place, std::move(connections));
}

}  // namespace rooflm::ranks
