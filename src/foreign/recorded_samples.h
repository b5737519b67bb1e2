// Samples of stacks in a stream: what they are called, what they stand for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "foreign/stack_names.h"
#include "inject/stream_format.h"
#include "record/rows.h"

namespace rooflm::foreign {

/// Facts and texts of the stream are borrowed.
class RecordedSamples {
 public:
  RecordedSamples(const std::map<std::string, std::string>& facts,
                  const std::unordered_map<std::uint32_t, std::string>& texts)
      : facts_(facts), texts_(texts), names_(facts) {}

  static bool is_sample(const inject::Row& row);
  /// Whether its name is made of addresses, and `name_of` knows it; the others are texts as they are.
  static bool has_addresses(const inject::Row& row);
  /// Whether the thread waited there, from start to end.
  static bool is_waiting(const inject::Row& row) { return row.range == inject::RangeKind::waiting; }
  /// Whether there are frames of Python.
  [[nodiscard]] bool has_python(const inject::Row& row) const;
  /// "outermost;..;innermost"; each once, since addresses have to be looked up.
  const std::string& name_of(const inject::Row& row);
  /// How many periods of the rate that was asked for the sample stands for. Counts it.
  std::uint64_t take_periods(const inject::Row& row);
  /// The rate, in `text` how many there were and what each took; nothing where the stream does not say.
  [[nodiscard]] std::optional<record::Fact> rate() const;
  /// A sentence where they were taken much more seldom; "" else.
  [[nodiscard]] std::string problem() const;

 private:
  [[nodiscard]] std::string addresses_of(const inject::Row& row) const;
  [[nodiscard]] double hertz() const;

  const std::map<std::string, std::string>& facts_;
  const std::unordered_map<std::uint32_t, std::string>& texts_;
  StackNames names_;
  std::unordered_map<std::uint32_t, std::string> stacks_{};
  std::uint64_t samples_ = 0, periods_ = 0;  ///< of threads that ran
  std::uint64_t waits_ = 0, waited_ = 0;     ///< and of those that waited
};

}  // namespace rooflm::foreign
