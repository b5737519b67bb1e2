// NVIDIA GPUs as a device: every op against the reference on the processor, memory, times, recordings.
#include "backends/cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/device.h"
#include "backends/cuda/kernels/gemm_bf16x6.h"
#include "compile/passes/cast.h"
#include "core/error.h"
#include "program/fp32_products.h"
#include "program/ops.h"
#include "program/update.h"
#include "tests/backends/compact_update.h"
#include "tests/backends/fp8_producers.h"
#include "tests/backends/op_cases.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {
namespace {

using backends::cuda::CudaOptions;
using backends::cuda::has_bf16x6;
using backends::cuda::make_cuda_backend;
using core::DType;
using program::Fp32Products;
using program::Op;
using program::TensorId;

/// Why there is nothing to test, or empty.
const std::string& missing_gpu() {
  static const std::string reason = [] {
    const auto status = backends::cuda::query_cuda();
    return status.devices.empty() ? status.reason : std::string();
  }();
  return reason;
}

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!missing_gpu().empty()) GTEST_SKIP() << missing_gpu();
  }
};

double greatest(const std::vector<double>& values) {
  double most = 0;
  for (const double x : values) most = std::max(most, std::abs(x));
  return most;
}

/// How far the GPU may be from the reference, relative to one element and to the largest one.
struct Tolerance {
  double element, largest;
};

/// fp32: sums in another order and in fp32 where the reference adds in double, exp and tanh of the GPU's
/// approximations. bf16: the same number may be rounded the other way, 2^-7 of an element, also inside the op
/// (probabilities, the bias of a matmul), 2^-8 of the largest element; fp16, with three more bits, an eighth
/// of that. tf32 rounds operands to 2^-11.
/// Casts to fp8 are exact; those that make what they cast may find another neighbour in bf16, and from there
/// in fp8, which is an eighth or a quarter away.
Tolerance tolerance_of(DType dtype, Fp32Products products) {
  if (dtype == DType::bf16) return {0x1p-7, 0x1p-7};
  if (dtype == DType::f16) return {0x1p-10, 0x1p-10};
  return products == Fp32Products::tf32 ? Tolerance{0x1p-9, 0x1p-9} : Tolerance{1e-5, 2e-5};
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, Tolerance tolerance,
                  const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  const double absolute = tolerance.largest * greatest(expected);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;  // infinities, too
    const double allowed = absolute + tolerance.element * std::abs(expected[i]);
    ASSERT_LE(std::abs(actual[i] - expected[i]), allowed)
        << what << "[" << i << "]: " << actual[i] << " for " << expected[i];
  }
}

/// Codes of moments, four in a word: sums in another order may cross the border between two neighbours. What
/// follows the last of `elements` stays.
void expect_codes_close(const std::vector<double>& actual, const std::vector<double>& expected,
                        const std::vector<double>& before, std::int64_t elements, const std::string& what) {
  const auto code = [](const std::vector<double>& words, std::int64_t i) {
    const auto word =
        static_cast<std::uint32_t>(static_cast<std::int64_t>(words[static_cast<std::size_t>(i / 4)]));
    return static_cast<int>(word >> (8 * (i % 4)) & 0xffU);
  };
  for (std::int64_t i = 0; i < 4 * static_cast<std::int64_t>(actual.size()); ++i) {
    if (i < elements) {
      ASSERT_LE(std::abs(code(actual, i) - code(expected, i)), 1) << what << "[" << i << "]";
    } else {
      ASSERT_EQ(code(actual, i), code(before, i)) << what << "[" << i << "] is padding";
    }
  }
}

/// Forward and backward in the dtype.
Case prepared(Case c, DType dtype, Fp32Products products) {
  append_backward(c);
  passes::cast(c.program, dtype);
  for (Op& op : c.program.ops) {
    if (op.is(program::ops::kMatmul)) program::set_fp32_products(op, products);
  }
  return c;
}

std::string describe(const Case& c, std::size_t op) {
  return c.name + ": " + std::string(c.program.ops[op].def->name);
}

struct Variant {
  Sizes sizes;
  DType dtype;
  Fp32Products products = Fp32Products::plain;
};
std::string name_of(const Variant& v) {
  return v.sizes.name + "_" + std::string(program::rate_name(v.dtype, v.products));
}
void PrintTo(const Variant& v, std::ostream* out) { *out << name_of(v); }

class CudaOps : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (!missing_gpu().empty()) GTEST_SKIP() << missing_gpu();
    if (GetParam().products == Fp32Products::bf16x6 && !has_bf16x6())
      GTEST_SKIP() << "bf16x6 needs a GPU of compute capability 9.0";
  }
};

/// Runs each program on the reference; before each op, the GPU runs it on the same contents.
TEST_P(CudaOps, MatchTheReference) {
  const auto& [sizes, dtype, products] = GetParam();
  const auto cpu = backends::make_cpu_backend(backends::CpuKernels::reference, 2);
  const auto gpu = make_cuda_backend(0, {});
  for (const Case& plain : all_cases(sizes)) {
    if (std::ranges::any_of(plain.program.ops, is_of_processors)) continue;
    const Case c = prepared(plain, dtype, products);
    OpRunner expected(c, *cpu);
    OpRunner actual(c, *gpu);
    for (std::size_t op = 0; op < c.program.ops.size(); ++op) {
      SCOPED_TRACE(describe(c, op));
      actual.copy_from(expected);
      const program::Op& done = c.program.ops[op];
      std::map<TensorId, std::vector<double>> before;
      if (done.is(program::ops::kAdamW8Bit)) {
        for (const TensorId id : done.outputs) before[id] = expected.read(id);
      }
      expected.run(op);
      try {
        actual.run(op);
      } catch (const core::Error& error) {
        FAIL() << error.what();
      }
      for (std::size_t out = 0; out < done.outputs.size(); ++out) {
        const TensorId id = done.outputs[out];
        if (id == program::kNone) continue;
        const program::Tensor& tensor = c.program.tensor(id);
        if (before.contains(id) && tensor.dtype == DType::i32) {
          const program::UpdateOperands at(done);
          const std::size_t update = out / (1 + at.moments());
          expect_codes_close(actual.read(id), expected.read(id), before[id],
                             c.program.shape(done.inputs[at.weight_in(update)]).numel(), tensor.name);
          continue;
        }
        const bool is_half = tensor.dtype == DType::bf16 || tensor.dtype == DType::f16;
        // What is cast was rounded to bf16 before, in another place at times.
        const bool is_copy = done.attrs.has("e5m2") && (core::is_fp8(tensor.dtype) || id == done.outputs[2]);
        const auto tolerance = done.is(program::ops::kFp8Cast) ? Tolerance{0, 0}
                               : is_copy                       ? Tolerance{0x1p-2, 0x1p-7}
                                         : tolerance_of(is_half ? tensor.dtype : dtype, products);
        expect_close(actual.read(id), expected.read(id), tolerance, "output " + tensor.name);
      }
    }
  }
}

TEST_F(Cuda, UpdatesOfHalvesAreThoseOfWholeNumbers) {
  const auto gpu = make_cuda_backend(0, {});
  for (const core::DType dtype : {core::DType::bf16, core::DType::f16})
    for (const std::string optimizer : {"adamw", "sgd"}) expect_compact_is_plain(optimizer, dtype, *gpu);
}

TEST_F(Cuda, CastsThatMakeWhatTheyCastGiveTheBitsOfWhatIsStored) {
  const auto gpu = make_cuda_backend(0, {});
  expect_casts_are_those_of_stored(*gpu);
}

/// The same bits again, and in the place of an input.
TEST_P(CudaOps, RepeatBitForBitAlsoInPlace) {
  const auto& [sizes, dtype, products] = GetParam();
  const auto gpu = make_cuda_backend(0, {});
  for (const Case& plain : all_cases(sizes)) {
    if (std::ranges::any_of(plain.program.ops, is_of_processors)) continue;
    const Case c = prepared(plain, dtype, products);
    OpRunner first(c, *gpu);
    OpRunner second(c, *gpu);
    for (std::size_t i = 0; i < c.program.ops.size(); ++i) {
      const Op& op = c.program.ops[i];
      second.copy_from(first);
      OpRunner before(c, *gpu);
      before.copy_from(first);
      first.run(i);
      second.run(i);
      for (const TensorId id : op.outputs) {
        if (id == program::kNone) continue;
        ASSERT_EQ(second.read(id), first.read(id)) << describe(c, i);
      }
      if (!can_run_in_place(c.program, op)) continue;
      before.run_in_place(i, static_cast<std::size_t>(op.def->in_place_input));
      for (const TensorId id : op.outputs) {
        if (id == program::kNone) continue;
        ASSERT_EQ(before.read(id), first.read(id)) << describe(c, i);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaOps,
                         testing::Values(Variant{kTiny, DType::f32}, Variant{kOdd, DType::f32},
                                         Variant{kTypical, DType::f32},
                                         Variant{kTypical, DType::f32, Fp32Products::tf32},
                                         Variant{kTiny, DType::f32, Fp32Products::bf16x6},
                                         Variant{kOdd, DType::f32, Fp32Products::bf16x6},
                                         Variant{kTypical, DType::f32, Fp32Products::bf16x6},
                                         Variant{kTiny, DType::bf16}, Variant{kOdd, DType::bf16},
                                         Variant{kTypical, DType::bf16}, Variant{kTiny, DType::f16},
                                         Variant{kOdd, DType::f16}, Variant{kTypical, DType::f16}),
                         [](const auto& test) { return name_of(test.param); });

/// Whoever lists GPUs between two calls leaves another one current.
TEST_F(Cuda, AnotherDeviceMayHaveBeenLookedAt) {
  const auto backend = make_cuda_backend(0, {});
  const std::vector<float> numbers{1, 2, 3, 4};
  const std::size_t bytes = numbers.size() * sizeof(float);
  void* data = backend->allocate(bytes);
  if (backends::cuda::query_cuda().devices.size() < 2) GTEST_SKIP() << "there is one GPU";
  backend->copy_in(data, numbers.data(), bytes);
  static_cast<void>(backends::cuda::query_cuda());
  std::vector<float> back(numbers.size());
  backend->copy_out(back.data(), data, bytes);
  EXPECT_EQ(back, numbers);
  backend->release(data);
}

TEST_F(Cuda, AllocatesCopiesAndGivesBack) {
  const auto gpu = make_cuda_backend(0, {});
  EXPECT_EQ(gpu->device(), "cuda:0");
  EXPECT_EQ(gpu->allocate(0), nullptr);
  const double free = gpu->free_bytes();
  {
    constexpr std::size_t kBytes = std::size_t{256} << 20U;
    const backends::Allocation memory(*gpu, kBytes);
    EXPECT_NEAR(gpu->free_bytes(), free - static_cast<double>(kBytes), static_cast<double>(kBytes) / 4);
    const std::array<int, 3> sent = {1, -2, 3};
    std::array<int, 3> received{};
    gpu->zero(memory.data(), kBytes);
    gpu->copy_in(memory.data(), sent.data(), sizeof sent);
    gpu->copy_out(received.data(), memory.data(), sizeof received);
    EXPECT_EQ(sent, received);
  }
  EXPECT_NEAR(gpu->free_bytes(), free, 64e6);
}

TEST_F(Cuda, OutOfMemoryLeavesTheDeviceUsable) {
  const auto gpu = make_cuda_backend(0, {});
  const double free = gpu->free_bytes();
  const auto too_much = static_cast<std::size_t>(2 * free);
  EXPECT_THROW(static_cast<void>(gpu->allocate(too_much)), core::OutOfMemory);
  const backends::Allocation memory(*gpu, 4096);
  gpu->zero(memory.data(), memory.bytes());
  EXPECT_NEAR(gpu->free_bytes(), free, 64e6);
}

TEST_F(Cuda, DevicesThatAreNotThereAreNamed) {
  try {
    make_cuda_backend(99, {});
    FAIL() << "there is no 100th GPU";
  } catch (const core::Unavailable& error) {
    EXPECT_NE(std::string(error.what()).find("cuda:99"), std::string::npos) << error.what();
  }
}

/// y += x as a kernel, its operands, and what is recorded of it.
TEST_F(Cuda, RecordingsRunAgainAndTakeTimes) {
  const auto gpu = make_cuda_backend(0, {});
  Case c = find_case(kTypical, "mean");
  OpRunner plain(c, *gpu);
  plain.run(0);
  const program::Op& op = c.program.ops[1];  // adds to the loss
  const backends::Allocation losses(*gpu, static_cast<std::size_t>(c.program.tensor(op.inputs[0]).bytes()));
  const backends::Allocation loss(*gpu, sizeof(float));
  const std::vector<float> ones(losses.bytes() / sizeof(float), 1.0F);
  gpu->copy_in(losses.data(), ones.data(), losses.bytes());
  gpu->zero(loss.data(), loss.bytes());
  const auto kernel = gpu->make_kernel(c.program, op);
  const auto stopwatch = gpu->make_stopwatch(2);
  const std::array<void*, 1> in = {losses.data()};
  const std::array<void*, 1> out = {loss.data()};
  const auto recording = gpu->record(
      [&](const auto& submitted) {
        stopwatch->mark(0);
        kernel({.in = in, .out = out});
        submitted(1);
        stopwatch->mark(1);
      },
      backends::Overlap::none);
  ASSERT_NE(recording, nullptr);
  constexpr int kReplays = 3;
  for (int i = 0; i < kReplays; ++i) recording->replay([] {});
  gpu->synchronize();
  float result = 0;
  gpu->copy_out(&result, loss.data(), sizeof result);
  EXPECT_FLOAT_EQ(result, kReplays * 0.5F * static_cast<float>(ones.size()));
  EXPECT_GT(stopwatch->elapsed_s(0, 1), 0.0);
  EXPECT_LT(stopwatch->elapsed_s(0, 1), 1.0);
}

}  // namespace
}  // namespace rooflm::tests
