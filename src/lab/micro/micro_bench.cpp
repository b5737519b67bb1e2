// Micro-benchmarks: attention alone, and matmuls as one big one, looped or batched.
#include "lab/micro/micro_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "compile/passes/differentiate.h"
#include "core/checked.h"
#include "core/elements.h"
#include "core/error.h"
#include "core/rng.h"
#include "core/stop_signals.h"
#include "core/units.h"
#include "engines/engine.h"
#include "program/ops.h"

namespace rooflm::lab {
namespace {

using program::Program;
using program::TensorId;

/// Uniform numbers in [-0.5, 0.5) as `dtype`: the rate does not depend on them unless they are denormal.
std::vector<std::byte> random_values(core::DType dtype, std::int64_t count, std::uint64_t stream) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * core::size_of(dtype));
  core::with_float_type(dtype, [&]<class T>(T) {
    auto* values = reinterpret_cast<T*>(bytes.data());
    for (std::int64_t i = 0; i < count; ++i) {
      values[i] = T(core::uniform(core::philox(0, stream, static_cast<std::uint64_t>(i))[0]) - 0.5F);
    }
  });
  return bytes;
}

std::int64_t kv_heads_of(const AttentionProblem& p) { return p.kv_heads > 0 ? p.kv_heads : p.heads; }

/// Forward and backward of one attention; "qkv" and "d_out" are its inputs.
Program attention_program(const AttentionProblem& p) {
  Program program;
  const std::int64_t kv_heads = kv_heads_of(p);
  const core::Shape packed{p.batch, p.seq, (p.heads + 2 * core::Count(kv_heads)) * p.head_dim};
  const TensorId qkv =
      program.add_tensor({.name = "qkv", .shape = packed, .dtype = p.dtype, .role = program::Role::input});
  program::Op op;
  op.def = &program::ops::kAttention;
  op.inputs = {qkv};
  op.scope = "attention";
  op.attrs = {{"heads", p.heads}, {"kv_heads", kv_heads}, {"head_dim", p.head_dim}};
  if (p.window > 0) op.attrs.set("window", p.window);
  const TensorId out = program.append(std::move(op), "out").at(0);
  const core::Shape shape = program.shape(out);
  passes::lower_attention(program, p.kind);
  const TensorId d_out =
      program.add_tensor({.name = "d_out", .shape = shape, .dtype = p.dtype, .role = program::Role::input});
  program::GradientMap gradients;
  gradients.set(out, d_out);
  passes::differentiate(program, 0, gradients);
  for (program::Tensor& tensor : program.tensors) {
    if (!tensor.full_precision) tensor.dtype = p.dtype;
  }
  for (program::Op& each : program.ops) {
    program::set_fp32_products(each, p.fp32_products);  // read by matmuls only
  }
  return program;
}

double matmul_flop(const Program& program, program::Phase phase) {
  double flop = 0;
  for (const program::Op& op : program.ops) {
    if (op.phase == phase) flop += static_cast<double>(program::cost_of(program, op).matmul_flop);
  }
  return flop;
}

Program gemm_program(const GemmProblem& p) {
  Program program;
  const bool is_big = p.strategy == GemmStrategy::big;
  const std::int64_t batch = is_big ? 1 : p.count;
  const std::int64_t rows = is_big ? core::Count(p.count) * p.m : core::Count(p.m);
  const core::Shape right = p.trans_b ? core::Shape{batch, p.n, p.k} : core::Shape{batch, p.k, p.n};
  program.add_tensor({.name = "a", .shape = {batch, rows, p.k}, .dtype = p.dtype});
  program.add_tensor({.name = "b", .shape = right, .dtype = p.dtype});
  program::Op op;
  op.def = &program::ops::kMatmul;
  op.inputs = {0, 1};
  op.attrs = program::ops::matmul_attributes({.m = rows,
                                              .n = p.n,
                                              .k = p.k,
                                              .trans_b = p.trans_b,
                                              .looped = p.strategy == GemmStrategy::looped,
                                              .batch = batch});
  program::set_fp32_products(op, p.fp32_products);
  program.append(std::move(op), "c");
  program.tensor(2).dtype = p.dtype;
  return program;
}

/// The tensors of a program in memory of a device, filled with random values.
class Operands {
 public:
  Operands(backends::Backend& backend, const Program& program) {
    for (std::size_t i = 0; i < program.tensors.size(); ++i) {
      const program::Tensor& tensor = program.tensors[i];
      const auto size = static_cast<std::size_t>(tensor.bytes());
      memory_.emplace_back(backend, size);
      addresses_.push_back(memory_.back().data());
      const auto values = random_values(tensor.dtype, tensor.shape.numel(), i);
      backend.copy_in(addresses_.back(), values.data(), size);
    }
  }
  [[nodiscard]] std::span<void* const> addresses() const { return addresses_; }

 private:
  std::vector<backends::Allocation> memory_;
  std::vector<void*> addresses_;
};

/// Whether the samples so far are enough. Throws core::Stopped when a signal asked to stop.
bool is_enough(std::size_t samples, double begin_s, const measure::SamplingOptions& options) {
  core::StopSignals::check();
  if (samples >= static_cast<std::size_t>(options.max_samples)) return true;
  return samples >= static_cast<std::size_t>(options.min_samples) &&
         measure::now_s() - begin_s >= options.seconds;
}

}  // namespace

double attention_bytes(const AttentionProblem& problem) {
  return static_cast<double>(engines::memory_need(attention_program(problem), problem.engine).total());
}

AttentionResult run_attention(backends::Backend& backend, const AttentionProblem& problem,
                              const measure::SamplingOptions& options, double memory_limit_bytes) {
  AttentionResult result;
  Program program = attention_program(problem);
  result.forward_flop = matmul_flop(program, program::Phase::forward);
  result.backward_flop = matmul_flop(program, program::Phase::backward);
  result.peak_bytes = static_cast<double>(engines::memory_need(program, problem.engine).total());
  engines::TensorStore store(backend);
  engines::Engine engine(std::move(program), problem.engine, store, memory_limit_bytes);
  const std::int64_t head_elements = problem.batch * problem.seq * problem.head_dim;
  const std::int64_t packed_heads = problem.heads + 2 * kv_heads_of(problem);
  engine.io().write_bytes("qkv", random_values(problem.dtype, packed_heads * head_elements, 1));
  engine.io().write_bytes("d_out", random_values(problem.dtype, problem.heads * head_elements, 2));
  engine.run();
  std::vector<double> forward;
  std::vector<double> backward;
  const double start = measure::now_s();
  while (!is_enough(forward.size(), start, options)) {
    const engines::StepTimes times = engine.run();
    forward.push_back(times.forward_s);
    backward.push_back(times.backward_s);
  }
  result.workspace_bytes = static_cast<double>(backend.workspace_bytes());
  result.forward_library = engine.library_of(program::ops::kFlashAttention);
  result.backward_library = engine.library_of(program::ops::kFlashAttentionBackward);
  result.forward = core::summarise(forward);
  result.backward = core::summarise(backward);
  return result;
}

double GemmProblem::bytes() const {
  const Program program = gemm_program(*this);
  double bytes = 0;
  for (const program::Tensor& tensor : program.tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

namespace {

/// Matmuls on a device, with their operands.
class Products {
 public:
  Products(backends::Backend& backend, const GemmProblem& problem)
      : backend_(&backend),
        program_(gemm_program(problem)),
        operands_(checked(backend, problem), program_),
        kernel_(backend.make_kernel(program_, program_.ops.front())) {}
  void submit() {
    const std::span<void* const> all = operands_.addresses();
    kernel_({.in = all.first<2>(), .out = all.last<1>()});
  }
  void wait() { backend_->synchronize(); }

 private:
  static backends::Backend& checked(backends::Backend& backend, const GemmProblem& problem) {
    if (problem.bytes() <= backend.free_bytes()) return backend;
    throw core::OutOfMemory(
        fmt::format("the operands need {}, free memory is {}", core::format_bytes(problem.bytes()),
                    core::format_bytes(backend.free_bytes())),
        problem.bytes());
  }

  backends::Backend* backend_;
  Program program_;
  Operands operands_;
  backends::Kernel kernel_;
};

}  // namespace

void with_gemm(backends::Backend& backend, const GemmProblem& problem,
               const std::function<void(const std::function<void()>& run)>& use) {
  Products products(backend, problem);
  use([&] {
    products.submit();
    products.wait();
  });
}

GemmResult run_gemm(backends::Backend& backend, const GemmProblem& problem,
                    const measure::SamplingOptions& options) {
  Products products(backend, problem);
  const auto stopwatch = backend.make_stopwatch(2);
  std::vector<double> wall;
  std::vector<double> device;
  const auto run = [&] {
    const double begin = measure::now_s();
    stopwatch->mark(0);
    products.submit();
    stopwatch->mark(1);
    products.wait();
    wall.push_back(measure::now_s() - begin);
    device.push_back(stopwatch->elapsed_s(0, 1));
  };
  run();  // discarded: code is loaded, memory is touched
  wall.clear();
  device.clear();
  const double start = measure::now_s();
  while (!is_enough(wall.size(), start, options)) run();
  return {.wall = core::summarise(wall), .device = core::summarise(device)};
}

}  // namespace rooflm::lab
