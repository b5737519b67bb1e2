// The ceilings that a command goes by.
#include "lab/ceilings/ceiling_book.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/units.h"
#include "lab/ceilings/gpu_ceilings.h"
#include "lab/ceilings/machine_ceilings.h"
#include "lab/devices.h"
#include "record/loaded_ceiling.h"

namespace rooflm::lab {
namespace {

ComputeDtype compute_of(const Point& point) { return compute_dtype_of(point.step); }

/// Of all matmuls of the point: those outside of layers are bf16 where layers compute in fp8, and attention
/// multiplies in fp32 where matmuls are bf16x6.
std::vector<ComputeDtype> all_of(const Point& point) {
  if (point.step.fp32_products == program::Fp32Products::bf16x6) {
    return {compute_of(point), {.dtype = point.step.dtype}};
  }
  if (!point.step.fp8) return {compute_of(point)};
  return {compute_of(point), {.dtype = point.step.dtype}};
}

template <class T>
void add_new(std::vector<T>& values, const T& value) {
  if (std::ranges::find(values, value) == values.end()) values.push_back(value);
}

std::string key_of(const Point& point, CeilingBook::Wanted wanted) {
  return fmt::format("{} {} {} {}", point.device, name_of(compute_of(point)), resolve_threads(point.threads),
                     static_cast<int>(wanted));
}

}  // namespace

void CeilingBook::add(const std::vector<record::Ceiling>& rows) {
  for (const record::Ceiling& row : rows) {
    const bool is_known = std::ranges::any_of(rows_, [&](const record::Ceiling& other) {
      return other.device == row.device && other.what == row.what && other.level == row.level &&
             other.dtype == row.dtype && other.threads == row.threads;
    });
    if (!is_known) rows_.push_back(row);
  }
}

void CeilingBook::measure_host(std::span<const Point> points, Wanted wanted) {
  CeilingRequest request{.threads = {},
                         .dtypes = {},
                         .remeasure = remeasure_,
                         .only_products = wanted == Wanted::products,
                         .seconds = {}};
  if (wanted == Wanted::all) request.threads.insert(1);
  for (const Point& point : points) {
    request.threads.insert(resolve_threads(point.threads));
    for (const ComputeDtype& compute : all_of(point)) add_new(request.dtypes, compute.dtype);
  }
  if (!request.dtypes.empty()) add(machine_ceilings(request));
}

void CeilingBook::measure(std::span<const Point> points, Wanted wanted) {
  std::vector<Point> host;
  std::map<std::string, std::vector<ComputeDtype>> others;
  for (const Point& point : points) {
    if (!runs(point.device) || !asked_.insert(key_of(point, wanted)).second) continue;
    if (is_host(point.device)) {
      host.push_back(point);
    } else {
      for (const ComputeDtype& compute : all_of(point)) add_new(others[point.device], compute);
    }
  }
  measure_host(host, wanted);
  for (const auto& [device, dtypes] : others) {
    add(gpu_ceilings({.device = device,
                      .dtypes = dtypes,
                      .remeasure = remeasure_,
                      .only_products = wanted == Wanted::products,
                      .seconds = {}}));
  }
}

std::optional<record::Ceiling> CeilingBook::products(const Point& point) const {
  const int threads = is_host(point.device) ? resolve_threads(point.threads) : 0;
  const std::string dtype(name_of(compute_of(point)));
  for (const record::Ceiling& row : rows_) {
    if (row.what == "matmul" && row.device == point.device && row.dtype == dtype && row.threads == threads)
      return row;
  }
  return std::nullopt;
}

std::vector<record::Ceiling> CeilingBook::raise(const Point& point, const std::set<std::string>& bounds) {
  return raise_ceilings(rows_, attempts_, resolve_threads(point.threads), bounds);
}

std::string describe_peak(const record::Ceiling& peak) {
  const std::string threads = peak.threads > 0 ? core::format_count(peak.threads, "thread") + ", " : "";
  return fmt::format(
      "sustained matmul rate of {}, measured here: {}FLOP/s ({}{}, median of {}, interval {} to {}{})",
      peak.dtype, core::format_si(peak.value), threads, peak.problem, peak.samples,
      core::format_si(peak.ci_low), core::format_si(peak.ci_high),
      record::is_under_load(peak) ? "; " + peak.source : "");
}

}  // namespace rooflm::lab
