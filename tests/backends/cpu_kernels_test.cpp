// The fast kernels against the reference, fused ops against the ops they replace, and outputs in the place of
// inputs: for every op, in fp32 and bf16.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "backends/cpu/cpu_backend.h"
#include "compile/passes/cast.h"
#include "core/error.h"
#include "program/ops.h"
#include "program/plain_form.h"
#include "tests/backends/compact_update.h"
#include "tests/backends/fp8_producers.h"
#include "tests/backends/op_case_writer.h"
#include "tests/backends/op_cases.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {
namespace {

namespace ops = program::ops;
using backends::CpuKernels;
using core::DType;
using program::Op;
using program::TensorId;

double greatest(const std::vector<double>& values) {
  double most = 0;
  for (const double x : values) most = std::max(most, std::abs(x));
  return most;
}

/// How far a fast kernel may be from the reference, relative to one element and to the largest one.
struct Tolerance {
  double element, largest;
};

/// fp32: sums in another order, in fp32 where the reference adds in double (1e-6 times the square root of a
/// thousand terms), and exp and tanh within some units in the last place. bf16: the same number may be
/// rounded the other way, which is 2^-7 of an element; inside attention the probabilities are bf16 as well,
/// 2^-9 of the largest element each. fp32 results of bf16 operands carry what those roundings left. fp16, of
/// copies of weights: 2^-10 of an element.
Tolerance tolerance_of(DType dtype) {
  if (dtype == DType::bf16) return {0x1p-7, 0x1p-8};
  return dtype == DType::f16 ? Tolerance{0x1p-10, 1e-5} : Tolerance{3e-6, 1e-5};
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, Tolerance tolerance,
                  const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  const double absolute = tolerance.largest * greatest(expected);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;  // infinities, too
    ASSERT_LE(std::abs(actual[i] - expected[i]), absolute + tolerance.element * std::abs(expected[i]))
        << what << "[" << i << "]: " << actual[i] << " for " << expected[i];
  }
}

/// Forward and backward in the dtype.
Case prepared(Case c, DType dtype) {
  append_backward(c);
  passes::cast(c.program, dtype);
  return c;
}

std::string describe(const Case& c, std::size_t op) {
  return c.name + ": " + std::string(c.program.ops[op].def->name);
}

/// Runs the program on the reference; before each op, the fast kernel runs on the same contents.
void compare_case(const Case& c, DType dtype) {
  const auto reference = backends::make_cpu_backend(CpuKernels::reference, 2);
  const auto fast = backends::make_cpu_backend(CpuKernels::fast, 2);
  OpRunner expected(c, *reference);
  OpRunner actual(c, *fast);
  for (std::size_t op = 0; op < c.program.ops.size(); ++op) {
    actual.copy_from(expected);
    expected.run(op);
    actual.run(op);
    for (const TensorId id : c.program.ops[op].outputs) {
      if (id == program::kNone) continue;
      const program::Tensor& tensor = c.program.tensor(id);
      const auto tolerance = tolerance_of(core::size_of(tensor.dtype) == 2 ? tensor.dtype : dtype);
      expect_close(actual.read(id), expected.read(id), tolerance, describe(c, op) + " -> " + tensor.name);
    }
  }
}

class CpuKernelsOf : public testing::TestWithParam<std::tuple<Sizes, DType>> {};

TEST_P(CpuKernelsOf, FastMatchesReference) {
  const auto& [sizes, dtype] = GetParam();
  for (const Case& c : all_cases(sizes)) compare_case(prepared(c, dtype), dtype);
}

/// Bit for bit, for both kinds of kernels.
TEST_P(CpuKernelsOf, OutputMayTakeThePlaceOfTheInput) {
  const auto& [sizes, dtype] = GetParam();
  std::set<std::string_view> checked;
  for (const CpuKernels kernels : {CpuKernels::reference, CpuKernels::fast}) {
    const auto backend = backends::make_cpu_backend(kernels, 2);
    for (const Case& plain : all_cases(sizes)) {
      const Case c = prepared(plain, dtype);
      OpRunner expected(c, *backend);
      OpRunner actual(c, *backend);
      for (std::size_t i = 0; i < c.program.ops.size(); ++i) {
        const Op& op = c.program.ops[i];
        actual.copy_from(expected);
        expected.run(i);
        if (!can_run_in_place(c.program, op)) continue;
        actual.run_in_place(i, static_cast<std::size_t>(op.def->in_place_input));
        for (const TensorId id : op.outputs) {
          if (id == program::kNone) continue;
          ASSERT_EQ(actual.read(id), expected.read(id)) << describe(c, i);
        }
        checked.insert(op.def->name);
      }
    }
  }
  for (const program::OpDef* def : ops::all()) {
    EXPECT_EQ(def->in_place_input >= 0, checked.contains(def->name)) << def->name;
  }
}

/// Attention of context-parallel ranks has plain scores.
TEST(CpuKernels, WhatNoKernelLooksAtIsRefusedAndNotLeftOut) {
  for (const CpuKernels kernels : {CpuKernels::reference, CpuKernels::fast}) {
    const auto backend = backends::make_cpu_backend(kernels, 1);
    CaseWriter w("attention_block");
    w.op(ops::kAttentionBlock, {w.activation({1, 4, 12}), w.activation({1, 4, 8})},
         {{"heads", 1}, {"kv_heads", 1}, {"head_dim", 4}, {"parts", 2}, {"index", 1}, {"from", 0}});
    const Case c = w.done();
    Op op = c.program.ops[0];
    static_cast<void>(backend->make_kernel(c.program, op));
    op.attrs.set("window", std::int64_t{4});
    try {
      static_cast<void>(backend->make_kernel(c.program, op));
      FAIL() << "a kernel left the window out";
    } catch (const core::Unavailable& error) {
      EXPECT_NE(std::string(error.what()).find("a window of 4 tokens"), std::string::npos) << error.what();
    }
  }
}

/// Sums are cut at the same places whatever the number of threads is. Matmuls are the libraries' business:
/// they cut the inner dimension by the number of threads.
TEST_P(CpuKernelsOf, ThreadCountsLeaveTheBitsOfAllButMatmuls) {
  const auto& [sizes, dtype] = GetParam();
  for (const CpuKernels kernels : {CpuKernels::reference, CpuKernels::fast}) {
    const auto one = backends::make_cpu_backend(kernels, 1);
    const auto two = backends::make_cpu_backend(kernels, 2);
    const auto four = backends::make_cpu_backend(kernels, 4);
    for (const Case& plain : all_cases(sizes)) {
      const Case c = prepared(plain, dtype);
      OpRunner expected(c, *one);
      std::array others{OpRunner(c, *two), OpRunner(c, *four)};
      for (std::size_t i = 0; i < c.program.ops.size(); ++i) {
        const Op& op = c.program.ops[i];
        const bool is_compared = op.def->work != program::Work::matmul;
        for (OpRunner& other : others) {
          if (is_compared) other.copy_from(expected);
        }
        expected.run(i);
        for (OpRunner& other : others) {
          if (!is_compared) continue;
          other.run(i);
          for (const TensorId id : op.outputs) {
            if (id == program::kNone) continue;
            ASSERT_EQ(other.read(id), expected.read(id)) << describe(c, i);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllOps, CpuKernelsOf,
                         testing::Combine(testing::Values(kTiny, kOdd, kTypical),
                                          testing::Values(DType::f32, DType::bf16)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" +
                                  std::string(core::name_of(std::get<1>(test.param)));
                         });

/// Where x^2 overflows, too.
TEST(CpuKernels, GeluOfHugeNumbersHasASlope) {
  for (const CpuKernels kernels : {CpuKernels::reference, CpuKernels::fast}) {
    const auto backend = backends::make_cpu_backend(kernels, 2);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Case c = prepared(find_case(kTiny, "gelu"), dtype);
      OpRunner runner(c, *backend);
      runner.run_all();
      const std::vector<Op>& all = c.program.ops;
      const auto backward = std::ranges::find_if(all, [](const Op& op) { return op.is(ops::kGeluBackward); });
      ASSERT_NE(backward, all.end());
      const TensorId x = backward->inputs[1];
      std::vector<double> values = runner.read(x);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? 0x1p100 : -0x1p100;
      runner.write(x, values);
      const std::vector<double> dy = runner.read(backward->inputs[0]);
      runner.run(static_cast<std::size_t>(backward - all.begin()));
      const std::vector<double> dx = runner.read(backward->outputs[0]);
      for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx[i], i % 2 == 0 ? dy[i] : 0.0, 1e-5) << i;
    }
  }
}

TEST(CpuKernels, CasesCoverEveryOpButAttention) {
  std::set<std::string_view> covered;
  for (const Case& c : all_cases(kTiny)) {
    for (const Op& op : prepared(c, DType::bf16).program.ops) covered.insert(op.def->name);
  }
  for (const program::OpDef* def : ops::all()) {
    EXPECT_EQ(def != &ops::kAttention && !is_of_split_steps(*def), covered.contains(def->name)) << def->name;
  }
}

/// A fused kernel computes what the plain ops of its definition do, with output 0 in a place of its own and,
/// where it may be, in that of an input. In fp32 nothing is rounded in between, so the numbers are the same
/// bit for bit; but for a product and a sum that become one operation where they meet: the residual gradient
/// after a norm's.
TEST_P(CpuKernelsOf, FusedMatchesItsPlainOps) {
  const auto& sizes = std::get<0>(GetParam());
  const DType dtype = std::get<1>(GetParam());  // clang 14 captures no bindings
  std::set<std::string_view> checked;
  for (const CpuKernels kernels : {CpuKernels::reference, CpuKernels::fast}) {
    const auto backend = backends::make_cpu_backend(kernels, 2);
    for (const Case& bare : all_cases(sizes)) {
      const Case c = prepared(bare, dtype);
      OpRunner fused(c, *backend);
      OpRunner plain(c, *backend);
      for (std::size_t i = 0; i < c.program.ops.size(); ++i) {
        const Op& op = c.program.ops[i];
        plain.copy_from(fused);
        fused.run(i);
        if (program::plain_ops(c.program, op).empty()) continue;
        checked.insert(op.def->name);
        const auto expect_same = [&](const std::string& how) {
          for (const TensorId id : op.outputs) {
            if (id == program::kNone) continue;
            const std::string what = describe(c, i) + how + " -> " + c.program.tensor(id).name;
            const bool is_dx = op.def->name.ends_with("norm_backward") && id == op.outputs[0];
            if (dtype == DType::f32 && !is_dx) {
              ASSERT_EQ(plain.read(id), fused.read(id)) << what;
            } else {
              const Tolerance one_operation{0x1p-22, 0x1p-24};
              expect_close(plain.read(id), fused.read(id),
                           dtype == DType::f32 ? one_operation : tolerance_of(dtype), what);
            }
          }
        };
        OpRunner before(c, *backend);
        before.copy_from(plain);
        plain.run(i, Form::plain);
        expect_same("");
        if (!can_run_in_place(c.program, op)) continue;
        plain.copy_from(before);
        plain.run_in_place(i, static_cast<std::size_t>(op.def->in_place_input), Form::plain);
        expect_same(" in place");
      }
    }
  }
  for (const program::OpDef* def : ops::all()) {
    EXPECT_EQ(def->plain != nullptr, checked.contains(def->name)) << def->name;
  }
}

/// The bf16 copies that the optimizer writes are the casts of the weights it wrote.
TEST(CpuKernels, CopiesAreTheCastsOfTheWeights) {
  for (const CpuKernels kernels : {CpuKernels::reference, CpuKernels::fast}) {
    const auto backend = backends::make_cpu_backend(kernels, 2);
    for (const std::string name : {"adamw clipped copies", "sgd clipped copies"}) {
      const Case c = prepared(find_case(kOdd, name), DType::bf16);
      OpRunner runner(c, *backend);
      runner.run_all();
      const Op& update = c.program.ops.back();
      const std::size_t copies = update.is(ops::kAdamW) ? 6 : 2;
      auto weights = runner.read(update.outputs[0]);
      for (double& w : weights) {
        w = static_cast<double>(static_cast<float>(core::Bf16(static_cast<float>(w))));
      }
      EXPECT_EQ(runner.read(update.outputs[copies]), weights) << name;
    }
  }
}

TEST(CpuKernels, UpdatesOfHalvesAreThoseOfWholeNumbers) {
  const auto cpu = backends::make_cpu_backend(CpuKernels::reference, 2);
  for (const core::DType dtype : {core::DType::bf16, core::DType::f16})
    for (const std::string optimizer : {"adamw", "sgd"}) expect_compact_is_plain(optimizer, dtype, *cpu);
}

TEST(CpuKernels, CastsThatMakeWhatTheyCastGiveTheBitsOfWhatIsStored) {
  const auto cpu = backends::make_cpu_backend(CpuKernels::reference, 2);
  expect_casts_are_those_of_stored(*cpu);
}

/// Who computes what may change with the thread count, what comes out may not; but for matmuls, whose long
/// sums are cut into parts that fit the caches that the threads share.
TEST(CpuKernels, ResultsDoNotDependOnTheThreadCount) {
  for (const CpuKernels kernels : {CpuKernels::reference, CpuKernels::fast}) {
    const auto one = backends::make_cpu_backend(kernels, 1);
    const auto three = backends::make_cpu_backend(kernels, 3);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Case& plain : all_cases(kOdd)) {
        const Case c = prepared(plain, dtype);
        OpRunner expected(c, *one);
        OpRunner actual(c, *three);
        for (std::size_t i = 0; i < c.program.ops.size(); ++i) {
          actual.copy_from(expected);
          expected.run(i);
          actual.run(i);
          for (const TensorId id : c.program.ops[i].outputs) {
            if (id == program::kNone) continue;
            if (c.program.ops[i].attrs.has("k")) {
              expect_close(actual.read(id), expected.read(id), tolerance_of(dtype), describe(c, i));
            } else {
              EXPECT_EQ(actual.read(id), expected.read(id)) << describe(c, i);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace rooflm::tests
