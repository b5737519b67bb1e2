// LayerNorm in formats of 16 bits.
#include "lab/micro/format_norms.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <string>

#include "core/dtype.h"
#include "core/f16.h"
#include "core/rng.h"

namespace rooflm::lab {
namespace {

constexpr float kEps = 1e-5F;
constexpr std::uint64_t kSeed = 15;

template <class Half>
float rounded(float value) {
  return static_cast<float>(Half(value));
}

/// y in fp64.
std::vector<double> exact_norm(const std::vector<float>& x) {
  const auto n = static_cast<double>(x.size());
  double mean = 0;
  for (const float value : x) mean += value / n;
  double var = 0;
  for (const float value : x) var += (value - mean) * (value - mean) / n;
  std::vector<double> y;
  for (const float value : x) y.push_back((value - mean) / std::sqrt(var + kEps));
  return y;
}

/// y as computed; an empty one where a sum overflowed.
template <class Half>
std::vector<float> computed_norm(const std::vector<float>& x, bool in_format) {
  const auto keep = [in_format](float value) { return in_format ? rounded<Half>(value) : value; };
  const auto n = static_cast<float>(x.size());
  float sum = 0;
  for (const float value : x) sum = keep(sum + value);
  const float mean = keep(sum / n);
  float squares = 0;
  for (const float value : x) {
    const float off = keep(value - mean);
    squares = keep(squares + keep(off * off));
  }
  if (!std::isfinite(sum) || !std::isfinite(squares)) return {};
  const float scale = keep(1 / keep(std::sqrt(keep(keep(squares / n) + kEps))));
  std::vector<float> y;
  for (const float value : x) y.push_back(rounded<Half>(keep(value - mean) * scale));
  return y;
}

}  // namespace

template <class Half>
NormError norm_error(std::int64_t rows, std::int64_t width, double deviation, bool in_format) {
  NormError error{.outputs = rows * width};
  double squares = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<float> x;
    for (std::int64_t i = 0; i < width; ++i) {
      const float normal = core::normal(kSeed, 0, static_cast<std::uint64_t>(row * width + i));
      x.push_back(rounded<Half>(static_cast<float>(deviation) * normal));
    }
    const std::vector<double> wanted = exact_norm(x);
    const std::vector<float> got = computed_norm<Half>(x, in_format);
    if (got.empty()) {
      error.not_finite += width;
      continue;
    }
    for (std::size_t i = 0; i < got.size(); ++i) squares += (got[i] - wanted[i]) * (got[i] - wanted[i]);
  }
  const std::int64_t finite = error.outputs - error.not_finite;
  if (finite > 0) error.rms = std::sqrt(squares / static_cast<double>(finite));
  return error;
}

template NormError norm_error<core::F16>(std::int64_t, std::int64_t, double, bool);
template NormError norm_error<core::Bf16>(std::int64_t, std::int64_t, double, bool);

std::vector<record::Cell> norm_cells() {
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kWidth = 768;
  constexpr std::array kDeviations = {1.0, 16.0, 256.0};
  std::vector<record::Cell> cells;
  std::int64_t row = 0;
  const auto number = [&](const char* column, double value) {
    cells.push_back({.series = "norms", .row = row, .col = column, .value = value, .text = {}, .unit = {}});
  };
  const auto add = [&](const char* format, double deviation, const NormError& all, const NormError& sums) {
    cells.push_back(
        {.series = "norms", .row = row, .col = "format", .value = {}, .text = format, .unit = {}});
    number("width", kWidth);
    number("input_std", deviation);
    number("outputs", static_cast<double>(all.outputs));
    number("overflowed", static_cast<double>(all.not_finite));
    if (all.rms) number("error_rms", *all.rms);
    number("overflowed_fp32_sums", static_cast<double>(sums.not_finite));
    if (sums.rms) number("error_rms_fp32_sums", *sums.rms);
    ++row;
  };
  for (const double deviation : kDeviations) {
    add("fp16", deviation, norm_error<core::F16>(kRows, kWidth, deviation, true),
        norm_error<core::F16>(kRows, kWidth, deviation, false));
    add("bf16", deviation, norm_error<core::Bf16>(kRows, kWidth, deviation, true),
        norm_error<core::Bf16>(kRows, kWidth, deviation, false));
  }
  return cells;
}

}  // namespace rooflm::lab
