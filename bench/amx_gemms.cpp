// GEMMs of bf16 by AMX tiles against oneDNN and against the tile registers alone.
#include "amx_gemms.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/fast/amx/gemm.h"
#include "backends/cpu/fast/gemm.h"
#include "backends/cpu/fast/parallel.h"
#include "kernel_bench.h"
#include "measure/instruction_peaks.h"

namespace rooflm::bench {
namespace {

using namespace rooflm::backends::cpu;
using core::Bf16;
using core::DType;

double time_s(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

/// FLOP/s of TDPBF16PS on registers, on all threads.
class Registers {
 public:
  Registers() {
    for (const auto& loop : measure::instruction_loops()) {
      if (std::string_view(loop.set) == "AMX-BF16" && has_amx()) loop_ = &loop;
    }
    if (loop_ == nullptr) return;
    for (int i = 0; i < thread_count(); ++i) operands_.push_back(measure::make_operands(*loop_));
  }
  double flop_per_s() {
    if (loop_ == nullptr) return 0;
    const double seconds = time_s([&] {
#pragma omp parallel
      loop_->run(loop_->sample_rounds, operands_[static_cast<std::size_t>(omp_get_thread_num())]);
    });
    return loop_->round_flop * static_cast<double>(loop_->sample_rounds) *
           static_cast<double>(operands_.size()) / seconds;
  }

 private:
  const measure::InstructionLoop* loop_ = nullptr;
  std::vector<measure::InstructionOperands> operands_;
};

const TileOps& best_tiles() { return has_amx() ? amx_tiles() : emulated_tiles(); }

struct Operands {
  explicit Operands(const GemmProblem& p) : a(p.m * p.k), b(p.k * p.n), c(p.m * p.n) {}
  Array<Bf16> a, b;
  Array<float> c;
};

constexpr double kGiga = 1e-9;

/// One line: medians of at least three turns, at most nine or 1.5 s. Shares are medians of each turn's; ours
/// also has that of the best turn, as loads slow down for seconds where others use the host.
void run_shape(Registers& registers, std::string_view name, const GemmProblem& p) {
  constexpr int kFewestTurns = 3;
  constexpr int kMostTurns = 9;
  constexpr double kMostSeconds = 1.5;
  std::optional<Gemm> theirs;
  try {
    theirs.emplace(p);
  } catch (const core::Unavailable&) {
  }
  const AmxGemm ours(p, best_tiles());
  const Operands x(p);
  const Array<char> scratch(
      static_cast<std::int64_t>(std::max(theirs ? theirs->scratch_bytes() : 0, ours.scratch_bytes())));
  const double flop = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const auto run_theirs = [&] {
    if (theirs) (*theirs)(x.a, x.b, x.c, nullptr, scratch);
  };
  const auto run_ours = [&] { ours(x.a, x.b, x.c, nullptr, scratch); };
  run_theirs();
  run_ours();
  std::array<std::vector<double>, 3> rates;  // registers, oneDNN, ours
  std::array<std::vector<double>, 3> shares;
  double spent_s = 0;
  for (int turn = 0; turn < kMostTurns && (turn < kFewestTurns || spent_s < kMostSeconds); ++turn) {
    const double before = registers.flop_per_s();
    std::array<double, 3> rate{};
    const std::array<std::function<void()>, 2> bodies = {run_theirs, run_ours};
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      const double seconds = time_s(bodies.at(i));
      spent_s += seconds;
      rate.at(i + 1) = flop / seconds;
    }
    rate[0] = (before + registers.flop_per_s()) / 2;
    for (std::size_t i = 0; i < rate.size(); ++i) {
      rates.at(i).push_back(rate.at(i));
      shares.at(i).push_back(rate[0] > 0 ? 100 * rate.at(i) / rate[0] : 0);
    }
  }
  const AmxBlocks blocks = ours.blocks();
  fmt::print(
      "{:<16} {:>5} x {:>5} x {:>5} {:>9.0f} {:>8.0f} {:>4.0f}% {:>8.0f} {:>4.0f}% {:>4.0f}%  "
      "{}\n",
      name, p.m, p.n, p.k, kGiga * median(rates[0]), kGiga * median(rates[1]), median(shares[1]),
      kGiga * median(rates[2]), median(shares[2]), std::ranges::max(shares[2]),
      fmt::format("{} x {} x {}; {}", blocks.rows, blocks.columns, blocks.terms,
                  theirs ? theirs->implementation() : "none"));
  std::fflush(stdout);
}

GemmProblem problem(std::int64_t m, std::int64_t n, std::int64_t k, std::string_view stored) {
  GemmProblem p{.m = m, .n = n, .k = k, .a_type = DType::bf16, .b_type = DType::bf16, .c_type = DType::bf16};
  p.trans_a = stored == "TN";
  p.trans_b = stored == "NT";
  if (p.trans_a) p.c_type = DType::f32;
  return p;
}

/// What the loop over one block reaches without packing and c: one right panel of `terms` terms, and `panels`
/// left panels that pass it in turn. The L1 cache (48 KiB) serves both threads where they share a core.
void run_block_loop(Registers& registers, std::int64_t panels, std::int64_t terms) {
  constexpr int kTurns = 5;
  const TileOps& ops = best_tiles();
  const std::int64_t steps = terms / 32;
  const std::int64_t rounds = std::max<std::int64_t>(1, (has_amx() ? 400'000 : 400) / (panels * steps));
  const int threads = thread_count();
  const Array<Bf16> left(threads * panels * steps * 1024);
  const Array<Bf16> right(threads * steps * 1024);
  const Array<float> sums(threads * 1024L);
  std::vector<double> shares;
  std::vector<double> rates;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double before = registers.flop_per_s();
    const double seconds = time_s([&] {
#pragma omp parallel
      {
        const std::int64_t me = omp_get_thread_num();
        ops.begin();
        for (std::int64_t round = 0; round < rounds; ++round) {
          for (std::int64_t i = 0; i < panels; ++i) {
            ops.multiply(steps, left + (me * panels + i) * steps * 1024, right + me * steps * 1024,
                         sums + me * 1024, true, {}, {});
          }
        }
        ops.end();
      }
    });
    const double rate =
        4 * 16384.0 * static_cast<double>(rounds * panels * steps) * static_cast<double>(threads) / seconds;
    rates.push_back(kGiga * rate);
    shares.push_back(before > 0 ? 100 * rate / before : 0);
  }
  fmt::print(
      "block loop, {} left panels of {:>3} terms ({:>3} KiB of operands per thread): {:.0f} GFLOP/s "
      "{:.0f}%\n",
      panels, terms, (panels + 1) * terms * 64 / 1024, median(rates), median(shares));
}

/// One GEMM with several sizes of blocks, all in turn: what two operands, the sums and the next left panels
/// take of the L2 cache grows with them, what comes from beyond it per FLOP gets less.
void run_blocks(Registers& registers, std::int64_t n, std::string_view stored) {
  constexpr int kTurns = 7;
  const GemmProblem p = problem(n, n, n, stored);
  const Operands x(p);
  std::vector<AmxGemm> gemms;
  std::size_t scratch_bytes = 0;
  for (const std::int64_t side : {128, 192, 256, 320, 384, 512}) {
    gemms.emplace_back(p, best_tiles(), AmxBlocks{.rows = side, .columns = side});
    scratch_bytes = std::max(scratch_bytes, gemms.back().scratch_bytes());
  }
  const Array<char> scratch(static_cast<std::int64_t>(scratch_bytes));
  std::vector<std::vector<double>> shares(gemms.size());
  const double flop = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  for (int turn = -1; turn < kTurns; ++turn) {
    for (std::size_t i = 0; i < gemms.size(); ++i) {
      const double registers_rate = registers.flop_per_s();
      const double seconds = time_s([&] { gemms[i](x.a, x.b, x.c, nullptr, scratch); });
      if (turn >= 0) shares[i].push_back(registers_rate > 0 ? 100 * flop / seconds / registers_rate : 0);
    }
  }
  fmt::print("blocks of {}^3 {}, share of the registers, median (best):", n, stored);
  for (std::size_t i = 0; i < gemms.size(); ++i) {
    const AmxBlocks blocks = gemms[i].blocks();
    fmt::print("  {} x {} x {} {:.0f} ({:.0f})%", blocks.rows, blocks.columns, blocks.terms,
               median(shares[i]), std::ranges::max(shares[i]));
  }
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace

void run_amx_gemms() {
  Registers registers;
  if (!has_amx())
    fmt::print("no AMX with bf16 here: small shapes with emulated tiles, to try this program\n");
  fmt::print("{} threads; GFLOP/s, medians in turn; share of the registers\n", thread_count());
  fmt::print("{:<16} {:>21} {:>9} {:>14} {:>14} {:>5}  {}\n", "bf16 GEMM", "m x n x k", "registers", "oneDNN",
             "ours", "best", "blocks; oneDNN's kernel");
  const std::vector<std::int64_t> cubes =
      has_amx() ? std::vector<std::int64_t>{1024, 2048, 3072, 4096} : std::vector<std::int64_t>{256};
  for (const std::int64_t n : cubes) {
    for (const std::string_view stored : {"NT", "NN", "TN"})
      run_shape(registers, fmt::format("cube {}", stored), problem(n, n, n, stored));
  }
  struct Layer {
    std::int64_t in, out;
  };
  for (const auto& [in, out] : {Layer{768, 2304}, Layer{768, 3072}, Layer{3072, 768}, Layer{768, 50304}}) {
    if (!has_amx() && out > 768) continue;
    constexpr std::int64_t kTokens = 256;
    run_shape(registers, "y=x*W^T NT", problem(kTokens, out, in, "NT"));
    run_shape(registers, "dx=dy*W NN", problem(kTokens, in, out, "NN"));
    run_shape(registers, "dW=dy^T*x TN", problem(out, in, kTokens, "TN"));
  }
  for (const std::int64_t n :
       has_amx() ? std::vector<std::int64_t>{2048, 4096} : std::vector<std::int64_t>{512}) {
    for (const std::string_view stored : {"NT", "TN"}) run_blocks(registers, n, stored);
  }
  run_block_loop(registers, 1, 128);
  for (const std::int64_t terms : {128, 256, 384, 512}) run_block_loop(registers, 8, terms);
}

}  // namespace rooflm::bench
