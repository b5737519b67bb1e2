// Samples of stacks in a stream.
#include "foreign/recorded_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace rooflm::foreign {

using inject::RangeKind;
using inject::Row;

bool RecordedSamples::is_sample(const Row& row) {
  return row.kind == inject::RowKind::mark && (row.range == RangeKind::stack || has_addresses(row));
}

bool RecordedSamples::has_addresses(const Row& row) {
  return row.kind == inject::RowKind::mark &&
         (row.range == RangeKind::addresses || row.range == RangeKind::frames || is_waiting(row));
}

bool RecordedSamples::has_python(const Row& row) const {
  return row.range == RangeKind::stack || !addresses_of(row).starts_with('|');
}

const std::string& RecordedSamples::name_of(const Row& row) {
  const auto [entry, is_new] = stacks_.try_emplace(row.name);
  if (is_new) entry->second = names_.text_of(addresses_of(row));
  if (entry->second.empty()) entry->second = "[unknown]";
  return entry->second;
}

std::string RecordedSamples::addresses_of(const Row& row) const {
  if (row.range == RangeKind::frames || is_waiting(row)) return addresses_of_frames(row.name, texts_);
  const auto text = texts_.find(row.name);
  return text == texts_.end() ? "|" : text->second;
}

std::uint64_t RecordedSamples::take_periods(const Row& row) {
  constexpr std::uint64_t kMost = 1U << 20U;
  const std::uint64_t periods = std::clamp<std::uint64_t>(row.other, 1, kMost);
  ++(is_waiting(row) ? waits_ : samples_);
  (is_waiting(row) ? waited_ : periods_) += periods;
  return periods;
}

double RecordedSamples::hertz() const {
  constexpr double kMost = 1000;
  const auto rate = facts_.find("stack rate");
  const double hertz = rate == facts_.end() ? 0 : std::strtod(rate->second.c_str(), nullptr);
  return hertz > 0 && hertz <= kMost ? hertz : 0;
}

std::optional<record::Fact> RecordedSamples::rate() const {
  if (hertz() == 0) return std::nullopt;
  std::string text = fmt::format("{} samples of threads that ran, which stand for {}", samples_, periods_);
  if (waits_ > 0) text += fmt::format(", and {} of threads that waited, which stand for {}", waits_, waited_);
  const auto said = facts_.find("stack cost");
  std::istringstream cost(said == facts_.end() ? "" : said->second);
  double taking_us = 0;
  double signal_us = 0;
  double following_us = 0;
  if (cost >> taking_us >> signal_us >> following_us) {
    text +=
        fmt::format("; each took {:.1f} us in the thread, {:.1f} us to interrupt it and {:.1f} us to follow",
                    taking_us, signal_us, following_us);
  }
  return record::Fact{.key = "stack_hertz", .value = hertz(), .unit = "1/s", .text = text};
}

std::string RecordedSamples::problem() const {
  constexpr double kFewer = 0.75;
  const double share =
      static_cast<double>(samples_) / static_cast<double>(std::max<std::uint64_t>(1, periods_));
  if (hertz() == 0 || samples_ == 0 || share >= kFewer) return "";
  return fmt::format(
      "stacks were sampled {:.0f} times a second of a thread's time, not {:g}: more would cost more than "
      "--sample-stacks allows, or the system's ticks are no finer",
      hertz() * share, hertz());
}

}  // namespace rooflm::foreign
