// Progress of a list of things that take long.
#include "lab/work_left.h"

#include <fmt/format.h>

#include <string>

#include "core/units.h"
#include "lab/notes.h"

namespace rooflm::lab {

double seconds_left(double done, double all, double elapsed_s) { return elapsed_s / done * (all - done); }

void WorkLeft::begin(std::string_view what) {
  constexpr double kWorthSaying = 10;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  std::string left;
  if (begun_ > 0) {
    const double seconds =
        seconds_left(static_cast<double>(begun_), static_cast<double>(all_), elapsed.count());
    if (seconds >= kWorthSaying) left = fmt::format(" (about {} left)", core::format_clock(seconds));
  }
  ++begun_;
  note("[{}/{}] {}{}", begun_, all_, what, left);
}

}  // namespace rooflm::lab
