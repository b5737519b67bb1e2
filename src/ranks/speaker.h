// Of several ranks that find another one lost, one tells the user.
#pragma once

#include <string>

#include "ranks/transport.h"

namespace rooflm::ranks {

/// Another rank is lost, and one that writes to the same terminal or file as this one says so.
struct ToldByAnother : RankLost {
  using RankLost::RankLost;
};

/// What a carrier can besides, whose ranks hear each other after one of them is lost. MPI's do not: mpirun
/// ends them.
class Speaker {
 public:
  Speaker() = default;
  Speaker(const Speaker&) = delete;
  Speaker& operator=(const Speaker&) = delete;
  virtual ~Speaker() = default;

  /// Learns which ranks write their messages where this one does. All ranks call it.
  virtual void share_terminals() = 0;
  /// As Transport::abandon, of a rank that fails only because it lost another.
  virtual void give_up(const std::string& why) noexcept = 0;
  /// Whether another rank tells, at the terminal or in the file of this one: the one that failed, or of those
  /// that lost it the first. Waits for its word for up to two seconds.
  [[nodiscard]] virtual bool is_told_by_another() noexcept = 0;
};

/// This rank has lost another: tells the others. Throws `error`, or ToldByAnother.
[[noreturn]] void give_up(Transport& transport, const RankLost& error);

}  // namespace rooflm::ranks
