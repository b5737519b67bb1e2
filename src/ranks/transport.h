// Messages between the ranks of a job.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "ranks/place.h"
#include "ranks/pulse.h"

namespace rooflm::ranks {

/// Another rank has ended, or lets this one wait for too long (exit code 5).
struct RankLost : core::Unavailable {
  explicit RankLost(const std::string& message) : core::Unavailable(message) {}
};

/// Messages of one tag between two ranks arrive in the order in which they were sent. The first tags are
/// those of groups (program::Group).
using Tag = std::int32_t;
inline constexpr Tag kGroups = 0, kShared = 16, kParts = 17, kStop = 18, kTokens = 19, kFirstChannel = 64;

struct Outgoing {
  int to = 0;
  std::span<const std::byte> bytes;
};
struct Incoming {
  int from = 0;
  std::span<std::byte> bytes;
};

/// One rank's end. Used by one thread at a time. Nobody waits for ever: a rank that has ended, and one that
/// lets this one wait longer than its patience, is a RankLost that names it, the step and the op.
class Transport {
 public:
  explicit Transport(Place place) : place_(std::move(place)), patience_s_(place_.patience_s) {}
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  /// Without `leave` before it, others are told nothing and find this rank lost.
  virtual ~Transport() = default;

  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int size() const { return place_.size; }
  [[nodiscard]] bool is_first() const { return place_.rank == 0; }

  /// Sends and receives all of it; the memory belongs to the call until it returns. What arrives must be as
  /// long as what is waited for.
  virtual void exchange(Tag tag, std::span<const Outgoing> out, std::span<const Incoming> in) = 0;
  /// Sends a copy; does not wait until it has arrived.
  virtual void send(int to, Tag tag, std::span<const std::byte> bytes) = 0;
  /// Throws RankLost where a rank has ended. Does not wait.
  virtual void look() = 0;
  /// The work is done: waits until all that was sent is on its way, and says goodbye.
  virtual void leave() = 0;

  /// This rank fails: tells the others why, as far as they can be told at once. Never throws.
  virtual void abandon(const std::string& why) noexcept = 0;

  /// What this rank is at, for messages.
  void set_step(std::int64_t step) { step_ = step; }
  void set_op(std::string_view op) { op_ = op; }
  /// Seconds that it waits for others from now on.
  void set_patience(double seconds) { patience_s_ = seconds; }
  [[nodiscard]] double patience_s() const { return patience_s_; }
  /// How many different ones the ranks run on.
  [[nodiscard]] int hosts() const;
  /// How many ranks run on this one.
  [[nodiscard]] int ranks_here() const;
  /// "rank 1 (node7)"
  [[nodiscard]] std::string name_of(int rank) const;
  [[nodiscard]] std::string names_of(const std::vector<int>& ranks) const;
  /// ", at step 12, all_reduce in h.3/gradients"
  [[nodiscard]] std::string whereabouts() const;
  [[noreturn]] void throw_lost(int rank, const std::string& why) const;
  /// Throws when that is too long: the patience is at its end, or one of those who did not come has done
  /// nothing for as long as ranks wait within a step.
  void require_patience(double waited_s, const std::vector<int>& awaited) const;
  /// For work of which nobody waits for anybody for long: tells the others that this rank is alive, and
  /// throws RankLost where another has ended, or has done nothing for as long as ranks wait within a step.
  /// Does not wait.
  void look_around();
  /// Tells others from now on that this rank is alive, so that they can wait for it longer than within a
  /// step. All ranks call it.
  void begin_pulse();

 protected:
  void set_hosts(const std::vector<std::string>& hosts);
  /// The address of each rank of another host, with no port; of others, and where it is not known, none.
  [[nodiscard]] virtual std::vector<sockaddr_in> addresses() const;
  [[nodiscard]] std::vector<int> silent_among(const std::vector<int>& ranks) const;
  /// Whether somebody may be found silent before the patience is at its end.
  [[nodiscard]] bool hears_silence() const { return pulse_ != nullptr && patience_s_ > place_.patience_s; }
  [[nodiscard]] double shortest_patience_s() const {
    return hears_silence() ? place_.patience_s : patience_s_;
  }

  /// This rank waits for others while it lives.
  class Waiting {
   public:
    explicit Waiting(const Transport& transport) : pulse_(transport.pulse_.get()) { set(true); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() { set(false); }

   private:
    void set(bool is_waiting) {
      if (pulse_ != nullptr) pulse_->set_waiting(is_waiting);
    }
    Pulse* pulse_;
  };

 private:
  Place place_;
  double patience_s_;
  std::int64_t step_ = -1;
  std::string op_;
  std::vector<std::string> hosts_;
  std::unique_ptr<Pulse> pulse_;
  std::vector<bool> must_come_;  ///< by rank: pulses of ranks of this host
  std::chrono::steady_clock::time_point pulse_began_;
};

/// Whether this process writes what one of a job writes; one that is alone does.
inline bool is_first(const std::shared_ptr<Transport>& transport) {
  return transport == nullptr || transport->is_first();
}

/// Waits for others for up to `seconds` while it lives, as long as they do anything: while something is made
/// that takes ranks unequal times.
class Patience {
 public:
  static constexpr double kLongSeconds = 1800;
  explicit Patience(Transport* transport, double seconds = kLongSeconds);
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;
  ~Patience();

 private:
  Transport* transport_;
  double before_s_ = 0;
};

/// The end of this process, or nullptr where it is alone. Waits for all ranks to come, at most a minute.
/// Throws core::Unavailable that says who did not come and what may be wrong, core::UsageError.
std::unique_ptr<Transport> join(const Place& place);

/// The texts of all ranks, in their order.
std::vector<std::string> share(Transport& transport, const std::string& own);
/// Waits until all ranks are here.
void meet(Transport& transport);
/// The number of rank `from`, for all.
double from_rank(Transport& transport, int from, double own);
/// The numbers of all ranks, in their order.
std::vector<double> numbers(Transport& transport, double own);
/// The largest number of all ranks.
int most(Transport& transport, int own);

/// This machine's name.
std::string host_name();

}  // namespace rooflm::ranks
