// Which steps of a training loop have their activities kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rooflm::inject {

/// The first twelve steps, then pairs. Keeping activities makes a step longer, and so does the profiler's
/// coming and going (20 ms or more, whatever the step takes), so by default pairs are as rare as it needs for
/// them to add a five-hundredth to the time of the steps in between, and ten minutes apart at most: what a
/// pair costs is measured as the program runs.
class TraceRhythm {
 public:
  static constexpr std::uint64_t kByCost = 0;  ///< of `every`

  /// `every`: kByCost; 1: all steps; more: the first twelve, and two of each so many.
  explicit TraceRhythm(std::uint64_t every) : every_(every) {}

  /// A step ended, at that moment of a steady clock in nanoseconds. Whether the next one is traced.
  bool end_step(std::uint64_t now_ns);

 private:
  [[nodiscard]] bool is_next_traced() const;
  [[nodiscard]] std::uint64_t pause() const;
  void note(std::uint64_t step_ns);

  std::uint64_t every_;
  std::uint64_t ended_ = 0;    ///< steps
  std::uint64_t last_ns_ = 0;  ///< when the step before ended; 0: none has
  bool is_traced_ = true;      ///< the step that runs
  std::uint64_t traced_ = 0;   ///< steps of this pair, or of the first ones, that have ended
  std::uint64_t timed_ = 0;    ///< steps alone since then
  /// Of a pair and the step after it, in which the profiler leaves; 0: of the first ones.
  std::uint64_t pair_ns_ = 0;
  std::array<std::uint64_t, 15> timed_ns_{};  ///< of the last steps alone, in turn
  std::size_t noted_ = 0;                     ///< how many have been noted in all
};

}  // namespace rooflm::inject
