// Micro-benchmarks: attention alone, and matrix products cut up in different ways.
#include "measure/micro_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/f16.h"
#include "core/names.h"
#include "core/rng.h"
#include "core/units.h"
#include "engines/engine.h"
#include "passes/differentiate.h"
#include "program/ops.h"

namespace rooflm::measure {
namespace {

using program::Program;
using program::TensorId;

constexpr std::array kStrategies = {"big", "looped", "batched"};

/// Uniform numbers in [-0.5, 0.5) as `dtype`: the rate does not depend on them unless they are denormal.
std::vector<std::byte> random_values(core::DType dtype, std::int64_t count, std::uint64_t stream) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * core::size_of(dtype));
  const auto fill = [&]<class T>(T* values) {
    for (std::int64_t i = 0; i < count; ++i) {
      values[i] = T(core::uniform(core::philox(0, stream, static_cast<std::uint64_t>(i))[0]) - 0.5F);
    }
  };
  if (dtype == core::DType::bf16) {
    fill(reinterpret_cast<core::Bf16*>(bytes.data()));
  } else if (dtype == core::DType::f16) {
    fill(reinterpret_cast<core::F16*>(bytes.data()));
  } else if (dtype == core::DType::f32) {
    fill(reinterpret_cast<float*>(bytes.data()));
  } else {
    throw core::Unavailable(
        fmt::format("micro-benchmarks compute in fp32, bf16 and fp16, not in {}", core::name_of(dtype)));
  }
  return bytes;
}

/// Forward and backward of one attention; "qkv" and "d_out" are its inputs.
Program attention_program(const AttentionProblem& p) {
  Program program;
  const core::Shape packed{p.batch, p.seq, 3 * p.heads * p.head_dim};
  const TensorId qkv =
      program.add_tensor({.name = "qkv", .shape = packed, .dtype = p.dtype, .role = program::Role::input});
  program::Op op;
  op.def = &program::ops::kAttention;
  op.inputs = {qkv};
  op.scope = "attention";
  op.attrs = {{"heads", static_cast<double>(p.heads)},
              {"kv_heads", static_cast<double>(p.heads)},
              {"head_dim", static_cast<double>(p.head_dim)}};
  const TensorId out = program.append(std::move(op), "out").at(0);
  const core::Shape shape = program.shape(out);
  passes::lower_attention(program, p.kind);
  const TensorId d_out =
      program.add_tensor({.name = "d_out", .shape = shape, .dtype = p.dtype, .role = program::Role::input});
  program::GradientMap gradients{{out, d_out}};
  passes::differentiate(program, 0, gradients);
  for (program::Tensor& tensor : program.tensors) {
    if (!tensor.full_precision) tensor.dtype = p.dtype;
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
  const std::int64_t rows = is_big ? p.count * p.n : p.n;
  program.add_tensor({.name = "a", .shape = {batch, rows, p.n}, .dtype = p.dtype});
  program.add_tensor({.name = "b", .shape = {batch, p.n, p.n}, .dtype = p.dtype});
  program::Op op;
  op.def = &program::ops::kMatmul;
  op.inputs = {0, 1};
  op.attrs = {{"batch", static_cast<double>(batch)},
              {"m", static_cast<double>(rows)},
              {"n", static_cast<double>(p.n)},
              {"k", static_cast<double>(p.n)},
              {"looped", p.strategy == GemmStrategy::looped ? 1.0 : 0.0}};
  program.append(std::move(op), "c");
  program.tensor(2).dtype = p.dtype;
  return program;
}

}  // namespace

std::string_view name_of(GemmStrategy strategy) { return kStrategies.at(static_cast<std::size_t>(strategy)); }

GemmStrategy parse_gemm_strategy(std::string_view name) {
  const std::vector<std::string> names(kStrategies.begin(), kStrategies.end());
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw core::UsageError(core::unknown_name("strategy", name, names));
  return static_cast<GemmStrategy>(found - names.begin());
}

AttentionResult run_attention(backends::Backend& backend, const AttentionProblem& problem,
                              const SamplingOptions& options, double memory_limit_bytes) {
  AttentionResult result;
  Program program = attention_program(problem);
  result.forward_flop = matmul_flop(program, program::Phase::forward);
  result.backward_flop = matmul_flop(program, program::Phase::backward);
  result.peak_bytes = static_cast<double>(engines::memory_need(program, problem.engine).total());
  engines::TensorStore store(backend);
  engines::Engine engine(std::move(program), problem.engine, store, memory_limit_bytes);
  const std::int64_t elements = problem.batch * problem.seq * problem.heads * problem.head_dim;
  engine.io().write_bytes("qkv", random_values(problem.dtype, 3 * elements, 1));
  engine.io().write_bytes("d_out", random_values(problem.dtype, elements, 2));
  engine.run();
  std::vector<double> forward;
  std::vector<double> backward;
  const double start = now_s();
  while (forward.size() < static_cast<std::size_t>(options.max_samples)) {
    const engines::StepTimes times = engine.run();
    forward.push_back(times.forward_s);
    backward.push_back(times.backward_s);
    const bool enough = forward.size() >= static_cast<std::size_t>(options.min_samples);
    if (enough && now_s() - start >= options.seconds) break;
  }
  result.forward = core::summarise(forward);
  result.backward = core::summarise(backward);
  return result;
}

core::Summary run_gemm(backends::Backend& backend, const GemmProblem& problem,
                       const SamplingOptions& options) {
  const Program program = gemm_program(problem);
  std::array<backends::Allocation, 3> memory;
  std::array<void*, 3> addresses{};
  double bytes = 0;
  for (const program::Tensor& tensor : program.tensors) bytes += static_cast<double>(tensor.bytes());
  if (bytes > backend.free_bytes()) {
    throw core::OutOfMemory(fmt::format("the operands need {}, free memory is {}", core::format_bytes(bytes),
                                        core::format_bytes(backend.free_bytes())),
                            bytes);
  }
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const auto size = static_cast<std::size_t>(program.tensors[i].bytes());
    memory.at(i) = backends::Allocation(backend, size);
    addresses.at(i) = memory.at(i).data();
    const auto values = random_values(problem.dtype, program.tensors[i].shape.numel(), i);
    backend.copy_in(addresses.at(i), values.data(), size);
  }
  const backends::Kernel kernel = backend.make_kernel(program, program.ops.front());
  const std::span<void* const> all = addresses;
  return measure_rate(
      problem.flop(),
      [&] {
        kernel({.in = all.first<2>(), .out = all.last<1>()});
        backend.synchronize();
      },
      options);
}

}  // namespace rooflm::measure
