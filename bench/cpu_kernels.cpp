// Times the fast CPU kernels and compares each with the machine's own limits, measured in the same run.
//
//   cpu_kernels [--small] [--threads N] [--cpu-clock] [FILTER]
//   cpu_kernels --amx [--threads N]
//
// --amx compares bf16 GEMMs by AMX with oneDNN's and with the tile registers, and does nothing else. --small
// skips GEMMs and attention. FILTER selects the kernels whose name contains it. --cpu-clock reads the CPU
// time of the calling thread instead of the wall clock, for busy machines; it implies one thread. Every
// figure is the best of several runs: what the kernel can do.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "amx_gemms.h"
#include "backends/cpu/fast/activation.h"
#include "backends/cpu/fast/attention.h"
#include "backends/cpu/fast/converted_gemm.h"
#include "backends/cpu/fast/elementwise.h"
#include "backends/cpu/fast/embedding.h"
#include "backends/cpu/fast/gemm.h"
#include "backends/cpu/fast/loss.h"
#include "backends/cpu/fast/norm.h"
#include "backends/cpu/fast/optimizer.h"
#include "backends/cpu/fast/parallel.h"
#include "backends/cpu/fast/rope.h"
#include "core/error.h"
#include "kernel_bench.h"

namespace {

using namespace rooflm;
using namespace rooflm::backends::cpu;
using namespace rooflm::bench;
using core::Bf16;
using core::DType;

template <class AnyGemm, class S>
void run_gemm(const Bench& bench, const std::string& name, const GemmProblem& p) {
  if (!bench.wants(name)) return;
  std::unique_ptr<AnyGemm> gemm;
  try {
    gemm = std::make_unique<AnyGemm>(p);
  } catch (const core::Unavailable&) {
    return;  // oneDNN has no GEMM of bf16 here
  }
  const bool narrow = sizeof(S) == 2;
  const Array<S> a(p.m * p.k);
  const Array<S> b(p.k * p.n);
  const Array<float> c(p.m * p.n);
  const Array<char> scratch(static_cast<std::int64_t>(gemm->scratch_bytes()));
  bench.run(name, fmt::format("{} x {} x {}{}", p.m, p.n, p.k, p.accumulate ? " +=" : ""),
            narrow ? "bf16" : "fp32", 2.0 * static_cast<double>(p.m * p.n * p.k),
            narrow ? Limit::bf16_gemm : Limit::fp32_gemm, [&] { (*gemm)(a, b, c, nullptr, scratch); });
}

void run_gemms(const Bench& bench, const std::string& name, const GemmProblem& p) {
  if (p.a_type == DType::f32) {
    run_gemm<Gemm, float>(bench, name, p);
  } else {
    run_gemm<Gemm, Bf16>(bench, name, p);
    run_gemm<ConvertedGemm<Bf16>, Bf16>(bench, name + " converted", p);
  }
}

void run_linear(const Bench& bench, std::int64_t tokens, std::int64_t out, std::int64_t in) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const GemmProblem base{.a_type = type, .b_type = type, .c_type = type};
    GemmProblem y = base;
    y.m = tokens, y.n = out, y.k = in, y.trans_b = true;
    run_gemms(bench, "gemm y=x*W^T", y);
    GemmProblem dx = base;
    dx.m = tokens, dx.n = in, dx.k = out;
    run_gemms(bench, "gemm dx=dy*W", dx);
    GemmProblem dw = base;
    dw.m = out, dw.n = in, dw.k = tokens, dw.trans_a = true, dw.c_type = DType::f32;
    run_gemms(bench, "gemm dW=dy^T*x", dw);
    dw.accumulate = true;
    run_gemms(bench, "gemm dW+=dy^T*x", dw);
  }
}

template <class S>
constexpr std::string_view kName = sizeof(S) == 4 ? "fp32" : "bf16";

template <class S>
void run_attention(const Bench& bench, const AttentionShape& s) {
  if (!bench.wants("attention")) return;
  const std::int64_t tokens = s.batch * s.seq;
  const Array<S> qkv(tokens * (s.heads + 2 * s.kv_heads) * s.head_dim);
  const Array<S> d_qkv(tokens * (s.heads + 2 * s.kv_heads) * s.head_dim);
  const Array<S> o(tokens * s.heads * s.head_dim);
  const Array<S> d_o(tokens * s.heads * s.head_dim);
  const Array<float> lse(tokens * s.heads);
  const Array<char> scratch(static_cast<std::int64_t>(
      std::max(attention_forward_scratch_bytes(s), attention_backward_scratch_bytes(s))));
  const auto shape = fmt::format("B{} T{} H{} K{} D{}", s.batch, s.seq, s.heads, s.kv_heads, s.head_dim);
  const Limit limit = sizeof(S) == 4 ? Limit::fp32_gemm : Limit::bf16_gemm;
  bench.run("attention forward", shape, kName<S>, attention_forward_flop(s), limit,
            [&] { attention_forward<S>(s, qkv, o, lse, scratch); });
  bench.run("attention backward", shape, kName<S>, attention_backward_flop(s), limit,
            [&] { attention_backward<S>(s, d_o, qkv, o, lse, d_qkv, scratch); });
}

template <class S>
void run_rows(const Bench& bench, std::int64_t rows, std::int64_t cols) {
  const std::int64_t n = rows * cols;
  const double elements = static_cast<double>(n) * sizeof(S);
  const Array<S> x(2 * n), y(n), z(n), dx(2 * n);
  const Array<float> w(cols), b(cols), dw(cols), db(cols), mean(rows), rstd(rows);
  const Array<char> scratch(static_cast<std::int64_t>(
      std::max(norm_backward_scratch_bytes(rows, cols), bias_backward_scratch_bytes(rows, cols))));
  const auto shape = fmt::format("{} x {}", rows, cols);
  const auto line = [&](std::string_view name, double arrays, const std::function<void()>& body) {
    if (bench.wants(name)) bench.run(name, shape, kName<S>, arrays * elements, Limit::memory, body);
  };
  const NormForward<S> f{.rows = rows,
                         .cols = cols,
                         .x = x,
                         .residual = z,
                         .sum = dx,
                         .weight = w,
                         .bias = b,
                         .y = y,
                         .mean = mean,
                         .rstd = rstd};
  const NormBackward<S> g{.rows = rows,
                          .cols = cols,
                          .dy = y,
                          .x = x,
                          .weight = w,
                          .mean = mean,
                          .rstd = rstd,
                          .d_residual = z,
                          .dx = dx,
                          .dweight = dw,
                          .dbias = db};
  line("add + layernorm", 4, [&] { norm_forward<Norm::layer, S>(f); });
  line("add + rmsnorm", 4, [&] { norm_forward<Norm::rms, S>(f); });
  line("layernorm backward", 4, [&] { norm_backward<Norm::layer, S>(g, scratch); });
  line("rmsnorm backward", 4, [&] { norm_backward<Norm::rms, S>(g, scratch); });
  line("gelu forward", 2, [&] { gelu_forward<S>(n, x, y); });
  line("gelu backward", 3, [&] { gelu_backward<S>(n, z, x, y); });
  line("swiglu forward", 3, [&] { swiglu_forward<S>(rows, cols, x, y); });
  line("swiglu backward", 5, [&] { swiglu_backward<S>(rows, cols, y, x, dx); });
  line("bias backward", 1, [&] { bias_backward<S>(rows, cols, x, db, false, scratch); });
  line("add", 3, [&] { add<S>(n, x, z, y); });
}

template <class S>
void run_loss(const Bench& bench, std::int64_t rows, std::int64_t vocab) {
  if (!bench.wants("cross-entropy")) return;
  const LossShape s{.rows = rows, .cols = vocab, .valid = vocab == 50304 ? 50257 : vocab};
  const Array<S> logits(rows * vocab), gradient(rows * vocab);
  const Array<float> losses(rows), lse(rows);
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(rows), 17);
  const double bytes = static_cast<double>(rows * vocab) * sizeof(S);
  const auto shape = fmt::format("{} x {}", rows, vocab);
  bench.run("cross-entropy forward", shape, kName<S>, bytes, Limit::memory,
            [&] { cross_entropy_forward<S>(s, logits, targets.data(), losses, lse); });
  bench.run("cross-entropy backward", shape, kName<S>, 2 * bytes, Limit::memory,
            [&] { cross_entropy_backward<S>(s, logits, targets.data(), lse, 1.0F, gradient); });
  bench.run("cross-entropy both", shape, kName<S>, 2 * bytes, Limit::memory,
            [&] { cross_entropy_with_gradient<S>(s, logits, targets.data(), 1.0F, losses, lse, logits); });
}

template <class S>
void run_tokens(const Bench& bench, std::int64_t rows, std::int64_t cols) {
  const AttentionShape s{
      .batch = 4, .seq = rows / 4, .heads = cols / 64, .kv_heads = cols / 64, .head_dim = 64};
  const EmbeddingShape e{.batch = 4, .seq = rows / 4, .cols = cols};
  const Array<S> qkv(rows * 3 * cols), rotated(rows * 3 * cols), table(50304 * cols);
  const Array<float> cosines(rows * 32), sines(rows * 32), d_table(50304 * cols);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < rows; ++i) tokens.push_back(static_cast<std::int32_t>(i * 7919 % 50257));
  const double row_bytes = static_cast<double>(rows * cols) * sizeof(S);
  const auto shape = fmt::format("{} x {}", rows, cols);
  if (bench.wants("rope")) {
    bench.run("rope", shape, kName<S>, 6 * row_bytes, Limit::memory,
              [&] { rope<S>(s, {}, qkv, cosines, sines, false, nullptr, rotated); });
  }
  if (bench.wants("embedding")) {
    bench.run("embedding forward", shape, kName<S>, 2 * row_bytes, Limit::memory,
              [&] { embedding_forward<S>(e, tokens.data(), table, nullptr, nullptr, rotated); });
    bench.run("embedding backward", shape, kName<S>, row_bytes + 8.0 * static_cast<double>(rows * cols),
              Limit::memory, [&] { embedding_backward<S>(e, tokens.data(), qkv, d_table); });
  }
}

void run_optimizer(const Bench& bench, std::int64_t n) {
  const Array<float> p(n), m(n), v(n), g(n);
  const Array<Bf16> half(n);
  fill<float>(n, 1e-3F, v);
  const auto shape = fmt::format("{} parameters", n);
  const auto count = static_cast<double>(n);
  const AdamWStep step{.lr = 1e-4F, .weight_decay = 0.1F, .bias_correction1 = 0.5F, .bias_correction2 = 0.5F};
  const auto line = [&](std::string_view name, double bytes, const std::function<void()>& body) {
    if (bench.wants(name)) bench.run(name, shape, "fp32", bytes * count, Limit::memory, body);
  };
  const WholeWeights<core::Bf16> whole{p, half};
  const Array<Bf16> pairs(2 * n);
  auto* upper = reinterpret_cast<std::uint16_t*>(static_cast<Bf16*>(pairs));
  const HalvedWeights<core::Bf16> halves{upper, upper + n};
  const HalvedWeights<core::F16> halves_f16{upper, upper + n};
  const float* wide = g;
  const Bf16* narrow = half;
  line("adamw", 28, [&] { adamw_update(step, n, WholeWeights<core::Bf16>{p}, m, v, wide); });
  line("adamw + bf16 copy", 30, [&] { adamw_update(step, n, whole, m, v, wide); });
  line("adamw of halves, bf16 grad", 26, [&] { adamw_update(step, n, halves, m, v, narrow); });
  line("adamw of halves, fp16, fp32 grad", 28, [&] { adamw_update(step, n, halves_f16, m, v, wide); });
  line("sgd", 12, [&] { sgd_update({.lr = 1e-4F}, n, WholeWeights<core::Bf16>{p}, wide); });
  line("sum of squares", 4, [&] { (void)sum_of_squares(n, wide); });
  line("cast to bf16", 6, [&] { cast(n, p, half); });
  line("fill", 4, [&] { fill<float>(n, 0.0F, g); });
}

void run_gemms(Bench& bench) {
  bench.measure_limits();
  struct Linear {
    std::int64_t tokens, out, in;
  };
  for (const auto& l : {Linear{256, 2304, 768}, Linear{256, 768, 768}, Linear{256, 3072, 768},
                        Linear{256, 768, 3072}, Linear{256, 50304, 768}, Linear{512, 1536, 512},
                        Linear{512, 2688, 512}, Linear{512, 512, 1344}, Linear{4096, 2304, 768}}) {
    run_linear(bench, l.tokens, l.out, l.in);
  }
  for (const std::int64_t dim : {32, 64, 128}) {
    for (const std::int64_t seq : {64, 128, 512, 1024, 4096}) {
      const std::int64_t heads = 512 / dim;
      const AttentionShape s{.batch = std::max<std::int64_t>(1, 512 / seq),
                             .seq = seq,
                             .heads = heads,
                             .kv_heads = heads,
                             .head_dim = dim};
      run_attention<float>(bench, s);
      run_attention<Bf16>(bench, s);
    }
  }
}

/// Memory-bound ops, in cache and beyond, with rows of whole vectors and of odd lengths.
void run_small_ops(const Bench& bench) {
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{256, 768}, {65536, 768}, {65536, 777}}) {
    run_rows<float>(bench, rows, cols);
    run_rows<Bf16>(bench, rows, cols);
  }
  for (const auto& [rows, vocab] :
       {std::pair<std::int64_t, std::int64_t>{256, 50304}, {2048, 50304}, {2048, 50257}}) {
    run_loss<float>(bench, rows, vocab);
    run_loss<Bf16>(bench, rows, vocab);
  }
  for (const std::int64_t rows : {256, 32768}) {
    run_tokens<float>(bench, rows, 768);
    run_tokens<Bf16>(bench, rows, 768);
  }
  run_optimizer(bench, 40'000'000);
}

}  // namespace

int main(int argc, char** argv) {
  bool cpu_clock = false;
  bool small = false;
  bool amx = false;
  std::string filter;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--cpu-clock") {
      cpu_clock = true;
      omp_set_num_threads(1);
    } else if (argument == "--amx") {
      amx = true;
    } else if (argument == "--small") {
      small = true;
    } else if (argument == "--threads" && i + 1 < argc) {
      omp_set_num_threads(std::max(1, std::atoi(argv[++i])));
    } else if (argument.starts_with("--")) {
      fmt::print(stderr, "usage: cpu_kernels [--small | --amx] [--threads N] [--cpu-clock] [FILTER]\n");
      return 2;
    } else {
      filter = argument;
    }
  }
  if (amx) {
    run_amx_gemms();
    return 0;
  }
  Bench bench(cpu_clock, filter);
  fmt::print("{} threads, {} clock, best of several runs\n", thread_count(),
             cpu_clock ? "thread CPU" : "wall");
  Bench::print_header();
  if (!small) run_gemms(bench);
  run_small_ops(bench);
  return 0;
}
