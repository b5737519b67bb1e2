// The matmul rate of this machine.
#include "lab/ceilings/ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <thread>
#include <utility>

#include "core/elements.h"
#include "core/error.h"
#include "core/rng.h"
#include "core/statistics.h"
#include "lab/devices.h"
#include "measure/sampling.h"
#include "program/fp8.h"
#include "program/ops.h"

namespace rooflm::lab {
namespace {

/// Numbers in [-0.5, 0.5) as `dtype`; the rate of a matmul does not depend on them, unless they are denormal
/// or not finite.
std::vector<std::byte> operand_values(core::DType dtype, std::int64_t count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * core::size_of(dtype));
  constexpr std::int64_t kDistinct = 1 << 20;  // drawing more takes longer than measuring
  core::with_float_type(dtype, [&]<class T>(T) {
    auto* values = reinterpret_cast<T*>(bytes.data());
    for (std::int64_t i = 0; i < std::min(count, kDistinct); ++i) {
      values[i] = T(core::uniform(core::philox(0, 0, static_cast<std::uint64_t>(i))[0]) - 0.5F);
    }
    for (std::int64_t i = kDistinct; i < count; ++i) values[i] = values[i - kDistinct];
  });
  return bytes;
}

/// Results are rounded to it.
core::DType result_of(core::DType factors) { return core::is_fp8(factors) ? core::DType::bf16 : factors; }

/// A program of one op, its kernel and its operands.
class SingleOp {
 public:
  /// Writes factors of the `shape` and `dtype`, and slots of scales of 1 for fp8 ones; the output has the
  /// dtype too, or bf16.
  SingleOp(std::shared_ptr<backends::Backend> backend, program::Op op, const core::Shape& shape,
           core::DType dtype)
      : backend_(std::move(backend)) {
    for (const char* name : {"a", "b"}) {
      op.inputs.push_back(program_.add_tensor({.name = name, .shape = shape, .dtype = dtype}));
    }
    if (core::is_fp8(dtype)) {
      const program::TensorId slot = program_.add_tensor({.name = "slot", .shape = {program::kFp8Slot}});
      op.inputs.insert(op.inputs.end(), {program::kNone, slot, slot});
    }
    program_.append(std::move(op), "y");
    program_.tensors.back().dtype = result_of(dtype);
    for (const program::Tensor& tensor : program_.tensors) fill(tensor);
    for (const program::TensorId id : program_.ops.front().inputs) inputs_.push_back(address(id));
    output_.push_back(memory_.back().data());
    kernel_ = backend_->make_kernel(program_, program_.ops.front());
  }
  /// Returns when it has run that many times.
  void run(int times) const {
    for (int i = 0; i < times; ++i) kernel_({.in = inputs_, .out = output_});
    backend_->synchronize();
  }

 private:
  void fill(const program::Tensor& tensor) {
    const bool is_slot = tensor.shape.rank() == 1;
    const std::vector<float> ones(static_cast<std::size_t>(program::kFp8Slot), 1.0F);
    const std::vector<std::byte> values =
        is_slot ? std::vector<std::byte>() : operand_values(tensor.dtype, tensor.shape.numel());
    const std::span<const std::byte> bytes = is_slot ? std::as_bytes(std::span(ones)) : std::span(values);
    memory_.emplace_back(*backend_, bytes.size());
    backend_->copy_in(memory_.back().data(), bytes.data(), bytes.size());
  }
  [[nodiscard]] void* address(program::TensorId id) const {
    return id == program::kNone ? nullptr : memory_[static_cast<std::size_t>(id)].data();
  }

  std::shared_ptr<backends::Backend> backend_;
  program::Program program_;
  std::vector<backends::Allocation> memory_;  ///< of each tensor
  std::vector<void*> inputs_, output_;
  backends::Kernel kernel_;
};

/// Without operands. fp8 factors lie along k, and may be added up fast.
program::Op square_product(std::int64_t extent, const ComputeDtype& compute) {
  program::Op op;
  op.def = &program::ops::kMatmul;
  op.attrs = {{"batch", 1}, {"m", extent}, {"n", extent}, {"k", extent}};
  program::set_fp32_products(op, compute.fp32_products);
  // The fastest layout of its kernel.
  if (compute.fp32_products == program::Fp32Products::bf16x6) op.attrs.set("trans_a", true);
  if (core::is_fp8(compute.dtype)) {
    op.attrs.set("trans_b", true);
    op.attrs.set("fast_sums", true);
  }
  return op;
}

/// Matmuls that are ready to run, with the algorithms that the fused engine would take. Waiting for a GPU
/// takes some microseconds: there a sample is long enough to hide them.
std::vector<measure::Product> make_products(const std::string& device, const ComputeDtype& compute,
                                            int threads, const std::vector<std::int64_t>& extents) {
  // Of a sample: some milliseconds in 16 bits. bf16x6 multiplies as those, six times.
  const double gpu_flop = compute.fp32_products == program::Fp32Products::bf16x6 ? 2e12 / 6 : 2e12;
  const std::shared_ptr<backends::Backend> backend =
      make_backend(device, compile::EngineKind::fused, {.threads = threads});
  std::vector<measure::Product> products;
  for (const std::int64_t extent : extents) {
    auto product = std::make_shared<SingleOp>(backend, square_product(extent, compute),
                                              core::Shape{extent, extent}, compute.dtype);
    const auto n = static_cast<double>(extent);
    const int repeats = is_host(device) ? 1 : std::max(1, static_cast<int>(gpu_flop / (2 * n * n * n)));
    products.push_back(
        {.m = n, .n = n, .k = n, .repeats = static_cast<double>(repeats), .run = [product, repeats] {
           product->run(repeats);
         }});
  }
  return products;
}

}  // namespace

measure::Peak measure_products(const std::string& device, ComputeDtype compute, int threads,
                               const std::vector<std::int64_t>& extents,
                               const measure::SamplingOptions& options) {
  const auto products = make_products(device, compute, threads, extents);
  return measure::fastest_product(products, std::string(name_of(compute)),
                                  is_host(device) ? resolve_threads(threads) : 0, options);
}

measure::Peak measure_product_bursts(const std::string& device, ComputeDtype compute,
                                     const std::vector<std::int64_t>& extents, int samples) {
  constexpr auto kRest = std::chrono::milliseconds(8);
  measure::Peak best;
  for (const measure::Product& product : make_products(device, compute, 0, extents)) {
    product.run();
    std::vector<double> rates;
    for (int i = 0; i < samples; ++i) {
      std::this_thread::sleep_for(kRest);
      const double begin = measure::now_s();
      product.run();
      rates.push_back(product.flop() / (measure::now_s() - begin));
    }
    const core::Summary rate = core::summarise(rates);
    if (best.rate.count > 0 && rate.median <= best.rate.median) continue;
    best = {.what = "matmul burst",
            .dtype = std::string(name_of(compute)),
            .unit = "flop/s",
            .threads = 0,
            .problem = fmt::format("{:.0f}x{:.0f}x{:.0f}", product.m, product.n, product.k),
            .rate = rate};
  }
  return best;
}

std::string measuring_on_processor() {
  return fmt::format("{}-{:x}", measuring_digest(), static_cast<unsigned>(dnnl::get_effective_cpu_isa()));
}

}  // namespace rooflm::lab
