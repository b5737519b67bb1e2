// Sentences of a comparison: the verdict first.
#include "report/tables/compare_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/units.h"
#include "report/tables/compare_rows.h"
#include "report/tables/compare_times.h"

namespace rooflm::report {
namespace {

std::string signed_seconds(double seconds) {
  return (seconds < 0 ? "-" : "+") + core::format_seconds(std::abs(seconds));
}

/// Why it is UNSURE.
std::string doubt(const ComparedTime& row) {
  if (row.needed_samples > 0) {
    return fmt::format("no change could have been shown, however large: {} samples on each side are needed",
                       row.needed_samples);
  }
  const auto change = row.least_change();
  if (!change) return "no change could have been shown, however large: other programs used the processors";
  return fmt::format("the smallest change that these runs could have shown is {:.1f}%", 100 * *change);
}

}  // namespace

bool is_part(const ComparedTime& row) {
  return row.subject == kOutsideKernels || row.subject.find('/') != std::string::npos;
}

std::string largest_parts(const Comparison& comparison, const std::string& run) {
  constexpr std::size_t kMost = 4;
  constexpr double kLeast = 0.01;  // of the largest
  std::string text;
  std::size_t count = 0;
  double largest_s = 0;
  for (const ComparedTime& row : comparison.rows) {
    if (row.run != run || !is_part(row)) continue;
    const double size_s = std::abs(row.difference_s());
    largest_s = std::max(largest_s, size_s);
    if (!(size_s > kLeast * largest_s) || ++count > kMost) break;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", row.subject, signed_seconds(row.difference_s()));
  }
  return text;
}

std::optional<double> ComparedTime::least_change() const {
  const bool can_show = needed_samples == 0 && std::isfinite(allowance);
  if (!can_show || !(ratio > 0) || !(interval.low > 0)) return std::nullopt;
  return std::max(ratio / interval.low, interval.high / ratio) * (1 + allowance) - 1;
}

std::vector<std::string> verdict_sentences(const Comparison& comparison, double confidence) {
  std::vector<std::string> all;
  const auto& rows = comparison.rows;
  const bool is_one =
      std::ranges::all_of(rows, [&](const ComparedTime& row) { return row.run == rows.front().run; });
  for (const ComparedTime& row : rows) {
    if (row.subject != kWholeStep) continue;
    std::string text = fmt::format(
        "{}{}: a step takes {} in B and {} in A, B / A {:.3g} ({:.0f}% interval {:.3g} to {:.3g})",
        is_one ? "" : row.run + ": ", name_of(row.verdict), core::format_seconds(row.b_s),
        core::format_seconds(row.a_s), row.ratio, 100 * confidence, row.interval.low, row.interval.high);
    if (row.verdict == Verdict::unsure) text += "; " + doubt(row);
    text += ".";
    const std::string parts = largest_parts(comparison, row.run);
    if (!parts.empty())
      text += fmt::format(" Most of B - A ({}): {}.", signed_seconds(row.difference_s()), parts);
    all.push_back(std::move(text));
  }
  return all;
}

}  // namespace rooflm::report
