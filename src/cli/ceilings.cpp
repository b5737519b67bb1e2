// The matrix-product rate of this machine.
#include "cli/ceilings.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "cli/devices.h"
#include "cli/output.h"
#include "core/error.h"
#include "core/rng.h"
#include "core/units.h"
#include "program/ops.h"

namespace rooflm::cli {
namespace {

/// Numbers in [-0.5, 0.5) as `dtype`; the rate of a product does not depend on them, unless they are denormal
/// or not finite.
std::vector<std::byte> operand_values(core::DType dtype, std::int64_t count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * core::size_of(dtype));
  const auto fill = [&]<class T>(T*) {
    auto* values = reinterpret_cast<T*>(bytes.data());
    for (std::int64_t i = 0; i < count; ++i) {
      values[i] = T(core::uniform(core::philox(0, 0, static_cast<std::uint64_t>(i))[0]) - 0.5F);
    }
  };
  if (dtype == core::DType::bf16) {
    fill(static_cast<core::Bf16*>(nullptr));
  } else if (dtype == core::DType::f64) {
    fill(static_cast<double*>(nullptr));
  } else {
    fill(static_cast<float*>(nullptr));
  }
  return bytes;
}

/// c = a b of square matrices as a program of one op, its kernel and its operands.
class SquareProduct {
 public:
  SquareProduct(backends::Backend& backend, core::DType dtype, std::int64_t extent) {
    const auto n = static_cast<double>(extent);
    for (const char* name : {"a", "b"}) {
      program_.add_tensor({.name = name, .shape = {extent, extent}, .dtype = dtype});
    }
    program::Op op;
    op.def = &program::ops::kMatmul;
    op.inputs = {0, 1};
    op.attrs = {{"batch", 1}, {"m", n}, {"n", n}, {"k", n}};
    program_.append(std::move(op), "c");
    program_.tensor(2).dtype = dtype;
    const auto values = operand_values(dtype, extent * extent);
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      memory_.at(i) = backends::Allocation(backend, values.size());
      backend.copy_in(memory_.at(i).data(), values.data(), values.size());
      addresses_.at(i) = memory_.at(i).data();
    }
    kernel_ = backend.make_kernel(program_, program_.ops.front());
  }
  void run() const {
    kernel_({.in = std::span(addresses_).first<2>(), .out = std::span(addresses_).last<1>()});
  }

 private:
  program::Program program_;
  std::array<backends::Allocation, 3> memory_;
  std::array<void*, 3> addresses_{};
  backends::Kernel kernel_;
};

}  // namespace

measure::Peak measure_products(core::DType dtype, int threads, const std::vector<std::int64_t>& extents,
                               const measure::SamplingOptions& options) {
  const auto backend = make_backend("cpu", engines::EngineKind::fused, threads);
  std::vector<measure::Product> products;
  for (const std::int64_t extent : extents) {
    auto product = std::make_shared<SquareProduct>(*backend, dtype, extent);
    const auto size = static_cast<double>(extent);
    products.push_back({.m = size, .n = size, .k = size, .run = [product] { product->run(); }});
  }
  return measure::fastest_product(products, std::string(core::name_of(dtype)), resolve_threads(threads),
                                  options);
}

const measure::Peak& Ceilings::products(core::DType dtype) {
  const auto found = measured_.find(dtype);
  if (found != measured_.end()) return found->second;
  const auto peak = measure_products(dtype, threads_, {1024, 2048}, {.seconds = 0.5, .min_samples = 5});
  note("peak: {}", describe(peak));
  return measured_.emplace(dtype, peak).first->second;
}

std::string describe(const measure::Peak& peak) {
  const core::Interval& ci = peak.rate.median_ci;
  return fmt::format("{} {}FLOP/s ({} threads, {}, median of {}, {:.0f}% interval {} to {})", peak.dtype,
                     core::format_si(peak.rate.median), peak.threads, peak.problem, peak.rate.count,
                     100 * ci.coverage, core::format_si(ci.low), core::format_si(ci.high));
}

}  // namespace rooflm::cli
