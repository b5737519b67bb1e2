// Messages through MPI: each is cut into pieces that MPI can count. mpirun ends all ranks when one ends
// without a word.
#include "ranks/mpi_transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <list>
#include <thread>
#include <utility>

#include "core/stop_signals.h"
#include "core/system/shared_library.h"
#include "core/system/terminal.h"
#include "ranks/openmpi_abi.h"
#include "ranks/start_watch.h"

namespace rooflm::ranks {
namespace {

using Clock = std::chrono::steady_clock;

openmpi::Functions load() {
  const core::SharedLibrary library("Open MPI", {openmpi::kFile});
  openmpi::Functions mpi{};
  library.need("MPI_Init_thread", mpi.init_thread);
  library.need("MPI_Finalize", mpi.finalize);
  library.need("MPI_Abort", mpi.abort);
  library.need("MPI_Comm_rank", mpi.rank);
  library.need("MPI_Comm_size", mpi.size);
  library.need("MPI_Isend", mpi.isend);
  library.need("MPI_Irecv", mpi.irecv);
  library.need("MPI_Test", mpi.test);
  library.need("ompi_mpi_comm_world", mpi.world);
  library.need("ompi_mpi_byte", mpi.byte);
  return mpi;
}

void check(int status, const char* what) {
  if (status != openmpi::kSuccess) throw RankLost(fmt::format("MPI: {} failed with code {}", what, status));
}

/// A message on its way; its memory is somebody else's, or its own.
struct Pending {
  openmpi::Request request = nullptr;
  int rank = 0;
  std::vector<std::byte> owned{};
};

/// MPI may wait for ever for a server that the environment names and that is of another MPI, or none. Its
/// call cannot be ended: this ends the process, and says so before.
[[noreturn]] void end_at_limit(double limit_s) {
  core::write_message(fmt::format(
      "rooflm: MPI did not start within {:g} s: OMPI_COMM_WORLD_RANK is set, but no mpirun answers where the "
      "environment (PMIX_*, OMPI_*) says; unset these variables, or start ranks by mpirun",
      limit_s));
  std::fflush(nullptr);
  ::_exit(static_cast<int>(core::ExitCode::unavailable));
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(const Place& place, const openmpi::Functions& mpi) : Transport(place), mpi_(mpi) {
    int provided = 0;
    {
      const StartWatch watch(place, "MPI to start (OMPI_COMM_WORLD_RANK is set)",
                             [limit_s = place.start_patience_s] { end_at_limit(limit_s); });
      check(mpi_.init_thread(nullptr, nullptr, openmpi::kThreadSerialized, &provided), "starting");
    }
    int rank = 0;
    int size = 0;
    check(mpi_.rank(mpi_.world, &rank), "asking for the rank");
    check(mpi_.size(mpi_.world, &size), "asking for the number of ranks");
    if (rank != place.rank || size != place.size) {
      throw core::Unavailable(
          fmt::format("MPI says this is rank {} of {}, mpirun that it is {} of {}: another "
                      "Open MPI than mpirun's?",
                      rank, size, place.rank, place.size));
    }
    set_hosts(share(*this, host_name()));
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
  /// mpirun takes a process that ends without MPI_Finalize for one that failed, and ends the others.
  ~MpiTransport() override = default;

  void exchange(Tag tag, std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::list<Pending> pending;
    for (const Incoming& incoming : in) {
      for_pieces(incoming.bytes, [&](std::span<std::byte> piece) {
        Pending& next = pending.emplace_back(Pending{.rank = incoming.from});
        check(mpi_.irecv(piece.data(), static_cast<int>(piece.size()), mpi_.byte, incoming.from, tag,
                         mpi_.world, &next.request),
              "receiving");
      });
    }
    for (const Outgoing& outgoing : out) {
      for_pieces(outgoing.bytes, [&](std::span<const std::byte> piece) {
        submit(pending.emplace_back(Pending{.rank = outgoing.to}), tag, piece);
      });
    }
    wait(pending);
  }

  void send(int to, Tag tag, std::span<const std::byte> bytes) override {
    drop_done(sent_);
    for_pieces(bytes, [&](std::span<const std::byte> piece) {
      Pending& next = sent_.emplace_back(Pending{.rank = to, .owned = {piece.begin(), piece.end()}});
      submit(next, tag, next.owned);
    });
  }

  void look() override { drop_done(sent_); }

  void leave() override {
    wait(sent_);
    check(mpi_.finalize(), "ending");
  }

  /// Others learn of it from mpirun, which ends them when this process has said why, and ended.
  void abandon(const std::string&) noexcept override {}

 private:
  template <class Byte, class Do>
  static void for_pieces(std::span<Byte> bytes, Do&& run) {
    constexpr std::size_t kMost = std::size_t{1} << 30U;
    while (!bytes.empty()) {
      const std::size_t count = std::min(kMost, bytes.size());
      run(bytes.first(count));
      bytes = bytes.subspan(count);
    }
  }

  void submit(Pending& next, Tag tag, std::span<const std::byte> piece) {
    check(mpi_.isend(piece.data(), static_cast<int>(piece.size()), mpi_.byte, next.rank, tag, mpi_.world,
                     &next.request),
          "sending");
  }

  /// Whether any was done.
  bool drop_done(std::list<Pending>& pending) {
    return std::erase_if(pending, [this](Pending& each) {
             int is_done = 0;
             check(mpi_.test(&each.request, &is_done, nullptr), "waiting");
             return is_done != 0;
           }) > 0;
  }

  static std::vector<int> ranks_of(const std::list<Pending>& pending) {
    std::vector<int> ranks;
    for (const Pending& each : pending) {
      if (std::ranges::find(ranks, each.rank) == ranks.end()) ranks.push_back(each.rank);
    }
    return ranks;
  }

  /// Gives the processor away between two looks: there may be more ranks than cores.
  void wait(std::list<Pending>& pending) {
    constexpr int kLooks = 100;
    constexpr std::chrono::microseconds kPause{50};
    const Waiting waiting(*this);
    auto since = Clock::now();
    for (int looks = 0; !pending.empty(); ++looks) {
      if (drop_done(pending)) {
        since = Clock::now();
        looks = 0;
      } else if (looks < kLooks) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kPause);
        const double waited_s = std::chrono::duration<double>(Clock::now() - since).count();
        tell_if_asked_to_end(waited_s, pending);
        if (waited_s >= shortest_patience_s()) require_patience(waited_s, ranks_of(pending));
      }
    }
  }

  /// mpirun, which knows why, leaves a rank two seconds to end: it says where it is.
  void tell_if_asked_to_end(double waited_s, const std::list<Pending>& pending) {
    constexpr double kUsual = 0.2;  // longer than within most steps
    if (has_told_ || waited_s < kUsual || core::StopSignals::received() == 0) return;
    has_told_ = true;
    core::write_message(fmt::format("rooflm: {} is asked to end while it waits for {}{}", name_of(rank()),
                                    names_of(ranks_of(pending)), whereabouts()));
  }

  bool has_told_ = false;
  openmpi::Functions mpi_;
  std::list<Pending> sent_;
};

}  // namespace

std::unique_ptr<Transport> join_by_mpi(const Place& place) {
  return std::make_unique<MpiTransport>(place, load());
}

std::string missing_mpi() {
  try {
    load();
  } catch (const core::Unavailable& error) {
    return error.what();
  }
  return {};
}

}  // namespace rooflm::ranks
