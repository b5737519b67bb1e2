// Training losses of several runs beside each other.
#include "report/runs/loss_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>

#include "report/tables/train_rows.h"
#include "report/tables/typed_columns.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

constexpr int kStretches = 10;
constexpr double kSmoothing = 1.0 / 20;  // of the tokens that both have seen

double tokens_of(const LossCurve& curve) { return curve.steps.back() * curve.tokens_per_step; }

double common_tokens(std::span<const LossCurve> curves) {
  double tokens = tokens_of(curves.front());
  for (const LossCurve& curve : curves) tokens = std::min(tokens, tokens_of(curve));
  return tokens;
}

/// Mean of the losses of steps that ended after `from` tokens and by `to`; nothing where there are none.
std::optional<double> mean_loss(const LossCurve& curve, double from, double to) {
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < curve.steps.size(); ++i) {
    const double tokens = curve.steps[i] * curve.tokens_per_step;
    if (tokens <= from || tokens > to) continue;
    sum += curve.losses[i];
    ++count;
  }
  return count > 0 ? std::optional(sum / static_cast<double>(count)) : std::nullopt;
}

/// The tokens after which the mean over the last `window` tokens is at most `loss`: no mean is taken before a
/// whole window was seen. Linear in the number of steps.
std::optional<double> tokens_to(const LossCurve& curve, double loss, double window) {
  double sum = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < curve.steps.size(); ++i) {
    sum += curve.losses[i];
    const double tokens = curve.steps[i] * curve.tokens_per_step;
    while (curve.steps[first] * curve.tokens_per_step <= tokens - window) sum -= curve.losses[first++];
    if (tokens < window) continue;
    // A sum that terms were taken from is off by roundings: equal losses must compare as equal.
    if (sum / static_cast<double>(i - first + 1) <= loss * (1 + 1e-12)) return tokens;
  }
  return std::nullopt;
}

/// Mean of the last `window` tokens before `end`.
std::optional<double> last_loss(const LossCurve& curve, double end, double window) {
  return mean_loss(curve, end - window, end);
}

/// The largest distance of smoothed losses, as a share of the first's, with its sign.
std::optional<double> largest_difference(const LossCurve& first, const LossCurve& other, double end,
                                         double window) {
  std::optional<double> largest;
  for (double to = window; to <= end * (1 + 1e-9); to += window) {
    const auto a = mean_loss(first, to - window, to);
    const auto b = mean_loss(other, to - window, to);
    if (!a || !b || *a == 0) continue;
    const double difference = *b / *a - 1;
    if (!largest || std::abs(difference) > std::abs(*largest)) largest = difference;
  }
  return largest;
}

/// Means over one stretch of the tokens.
struct LossRow {
  std::string run{};
  double tokens = 0, loss = 0, first_loss = 0;
  [[nodiscard]] std::optional<double> difference() const {
    return first_loss != 0 ? std::optional(loss / first_loss - 1) : std::nullopt;
  }
};

const TypedColumns<LossRow>& loss_columns() {
  static const TypedColumns<LossRow> columns = {
      {"run", "run", &LossRow::run, Seen::grouped},
      {"tokens", "up to", &LossRow::tokens, Show::si, "token"},
      {"loss", "loss", &LossRow::loss, Show::plain, "nats"},
      {"first_loss", "loss of the first", &LossRow::first_loss, Show::plain, "nats"},
      {"difference", "difference", &LossRow::difference, Show::percent2}};
  return columns;
}

/// What a curve and the first one need for one loss.
struct EqualLossRow {
  std::string run{};
  double loss = 0;
  std::optional<double> largest_difference{}, tokens{}, first_tokens{}, train_s{}, first_train_s{};
  [[nodiscard]] std::optional<double> tokens_ratio() const { return ratio_of(tokens, first_tokens); }
  [[nodiscard]] std::optional<double> time_ratio() const { return ratio_of(train_s, first_train_s); }
};

const TypedColumns<EqualLossRow>& equal_loss_columns() {
  using Of = EqualLossRow;
  static const TypedColumns<Of> columns = {
      {"run", "run", &Of::run},
      {"largest_difference", "largest difference", &Of::largest_difference, Show::percent2},
      {"loss", "at a loss of", &Of::loss, Show::plain, "nats"},
      {"tokens_ratio", "tokens / first", &Of::tokens_ratio, Show::fixed3},
      {"time_ratio", "time / first", &Of::time_ratio, Show::fixed3},
      {"tokens", "tokens", &Of::tokens, Show::si, "token"},
      {"first_tokens", "first's tokens", &Of::first_tokens, Show::si, "token"},
      {"train_s", "time", &Of::train_s, Show::seconds},
      {"first_train_s", "first's time", &Of::first_train_s, Show::seconds}};
  return columns;
}

}  // namespace

std::vector<Column> columns_of_losses() { return columns_of(loss_columns(), equal_loss_columns()); }

std::vector<LossCurve> loss_curves(const RecordSet& set) {
  std::vector<LossCurve> curves;
  for (const RunData& run : set.runs) {
    if (!is_training(run)) continue;
    const RecordFile& file = set.files[run.file];
    LossCurve curve{.name = file.name,
                    .tokens_per_step = run.number("tokens").value_or(0),
                    .step_s = ratio_of(run.number("train_s"), run.number("trained_steps")).value_or(0),
                    .steps = {},
                    .losses = {}};
    std::map<std::int64_t, double> losses;
    for (const record::Cell& cell : file.cells) {
      const bool is_loss = cell.series == record::kTrainingSeries && cell.col == "loss" && cell.value;
      if (is_loss && std::isfinite(*cell.value)) losses[cell.row] = *cell.value;
    }
    for (const auto& [step, loss] : losses) {
      curve.steps.push_back(static_cast<double>(step));
      curve.losses.push_back(loss);
    }
    if (!losses.empty() && curve.tokens_per_step > 0) curves.push_back(std::move(curve));
  }
  return curves;
}

Table loss_table(std::span<const LossCurve> curves) {
  if (curves.size() < 2) return {};
  std::vector<LossRow> rows;
  const double all = common_tokens(curves);
  for (const LossCurve& curve : curves.subspan(1)) {
    for (int i = 0; i < kStretches; ++i) {
      const double from = all * i / kStretches;
      const double to = all * (i + 1) / kStretches;
      const auto loss = mean_loss(curve, from, to);
      const auto first = mean_loss(curves.front(), from, to);
      if (!loss || !first) continue;
      rows.push_back({.run = curve.name, .tokens = to, .loss = *loss, .first_loss = *first});
    }
  }
  Table table = loss_columns().table(rows);
  table.notes.push_back(
      fmt::format("Means over ten equal stretches of the tokens that all runs have seen, compared with {}.",
                  curves.front().name));
  return table;
}

Table equal_loss_table(std::span<const LossCurve> curves) {
  if (curves.size() < 2) return {};
  std::vector<EqualLossRow> rows;
  const LossCurve& first = curves.front();
  for (const LossCurve& curve : curves.subspan(1)) {
    const double end = std::min(tokens_of(first), tokens_of(curve));
    const double window = end * kSmoothing;
    const auto a = last_loss(first, end, window);
    const auto b = last_loss(curve, end, window);
    if (!a || !b) continue;
    const double loss = std::max(*a, *b);
    const auto tokens = tokens_to(curve, loss, window);
    const auto first_tokens = tokens_to(first, loss, window);
    const auto seconds = [](const LossCurve& of, const std::optional<double>& seen) -> std::optional<double> {
      if (!seen || of.step_s <= 0) return std::nullopt;
      return *seen / of.tokens_per_step * of.step_s;
    };
    rows.push_back({.run = curve.name,
                    .loss = loss,
                    .largest_difference = largest_difference(first, curve, end, window),
                    .tokens = tokens,
                    .first_tokens = first_tokens,
                    .train_s = seconds(curve, tokens),
                    .first_train_s = seconds(first, first_tokens)});
  }
  Table table = equal_loss_columns().table(rows);
  table.notes.emplace_back(
      "Losses are smoothed: means over a twentieth of the tokens that both runs have seen. The loss to reach "
      "is the higher of their two final ones. A run that needs more tokens loses part of what its faster "
      "steps gain.");
  return table;
}

}  // namespace rooflm::report
