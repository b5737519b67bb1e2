// The CPU as a device: memory, threads, and ids from outside.
#include "backends/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/stop_signals.h"
#include "program/ops.h"
#include "tests/backends/op_cases.h"
#include "tests/backends/op_runner.h"

namespace rooflm::tests {
namespace {

using backends::CpuKernels;

TEST(CpuBackend, MemoryIsAligned) {
  const auto backend = backends::make_cpu_backend(CpuKernels::reference, 1);
  for (const std::size_t bytes : {1UL, 63UL, 4097UL, 5UL << 20U, 40UL << 20U}) {
    const backends::Allocation memory(*backend, bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 64, 0U) << bytes;
    std::memset(memory.data(), 1, bytes);
  }
  EXPECT_EQ(backend->allocate(0), nullptr);
}

TEST(CpuBackend, MoreMemoryThanThereIsThrows) {
  const auto backend = backends::make_cpu_backend(CpuKernels::reference, 1);
  const double free = backend->free_bytes();
  EXPECT_GT(free, 0);
  EXPECT_LT(free, 1e15);
  const auto bytes = static_cast<std::size_t>(2 * free);
  try {
    (void)backend->allocate(bytes);
    FAIL() << "allocated " << bytes;
  } catch (const core::OutOfMemory& error) {
    EXPECT_EQ(error.needed_bytes(), static_cast<double>(bytes));
    EXPECT_EQ(error.code(), core::ExitCode::out_of_memory);
  }
  EXPECT_THROW((void)backend->allocate(std::numeric_limits<std::size_t>::max()), core::OutOfMemory);
}

TEST(CpuBackend, CopiesAndZeroes) {
  const auto backend = backends::make_cpu_backend(CpuKernels::reference, 1);
  const backends::Allocation memory(*backend, 8);
  std::uint64_t value = 0x123456789abcdef0ULL;
  backend->copy_in(memory.data(), &value, sizeof value);
  std::uint64_t read = 0;
  backend->copy_out(&read, memory.data(), sizeof read);
  EXPECT_EQ(read, value);
  backend->zero(memory.data(), 4);
  backend->copy_out(&read, memory.data(), sizeof read);
  EXPECT_EQ(read, 0x1234567800000000ULL);
}

TEST(CpuBackend, NegativeThreadCountIsRefused) {
  EXPECT_THROW(backends::make_cpu_backend(CpuKernels::fast, -1), core::UsageError);
}

/// Ids that are no row of the table never become addresses.
TEST(CpuBackend, ForeignTokensAndTargetsAreRefused) {
  for (const CpuKernels kernels : {CpuKernels::reference, CpuKernels::fast}) {
    const auto backend = backends::make_cpu_backend(kernels, 2);
    for (const char* name : {"embedding tied", "embedding_positions", "cross_entropy"}) {
      Case c = find_case(kTiny, name);
      append_backward(c);
      for (std::size_t op = 0; op < c.program.ops.size(); ++op) {
        for (const auto id : c.program.ops[op].inputs) {
          if (!c.id_limits.contains(id)) continue;
          OpRunner runner(c, *backend);
          runner.run_all();
          auto ids = runner.read(id);
          ids[3] = static_cast<double>(c.id_limits.at(id));
          runner.write(id, ids);
          try {
            runner.run(op);
            FAIL() << name << ": " << c.program.ops[op].def->name << " took a foreign id";
          } catch (const core::InputError& error) {
            EXPECT_NE(std::string(error.what()).find(std::to_string(c.id_limits.at(id))), std::string::npos)
                << error.what();
          }
        }
      }
    }
  }
}

/// attention is always lowered; a program that still has it gets a clear error.
TEST(CpuBackend, EveryOpButAttentionHasAKernel) {
  Case c;
  const auto qkv = c.program.add_tensor({.name = "qkv", .shape = {1, 2, 12}});
  program::Op op;
  op.def = &program::ops::kAttention;
  op.inputs = {qkv};
  op.attrs = {{"heads", 1}, {"kv_heads", 1}, {"head_dim", 4}};
  c.program.append(op, "y");
  const auto backend = backends::make_cpu_backend(CpuKernels::fast, 1);
  EXPECT_THROW((void)backend->make_kernel(c.program, c.program.ops[0]), core::Unavailable);
}

/// oneDNN's AVX matmuls with long rows keep their stack pointer in the heap: a handler that ran there would
/// overwrite what malloc wrote before the block, and a later free would abort.
TEST(CpuBackend, ItsThreadsHaveAStackForSignals) {
  const core::StopSignals signals;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    ASSERT_EQ(::sigaction(signal, nullptr, &action), 0);
    EXPECT_NE(action.sa_flags & SA_ONSTACK, 0);
  }
  const auto backend = backends::make_cpu_backend(CpuKernels::fast, 3);
  std::atomic<int> threads{0};
#pragma omp parallel
  {
    stack_t stack{};
    if (::sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE) == 0) ++threads;
  }
  EXPECT_EQ(threads, 3);
}

}  // namespace
}  // namespace rooflm::tests
