// What goes wrong on a GPU is said in one line: kernels that fault are named by their op, ids outside of the
// vocabulary as on the processor, memory that is not there.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/device.h"
#include "backends/cuda/faults.h"
#include "core/error.h"
#include "program/ops.h"
#include "tests/backends/op_cases.h"

namespace rooflm::tests {
namespace {

using backends::cuda::make_cuda_backend;
using program::TensorId;

class CudaFault : public testing::Test {
 protected:
  void SetUp() override {
    // A process whose GPU was asked for may not fork: each death test starts anew.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto status = backends::cuda::query_cuda();
    if (status.devices.empty()) GTEST_SKIP() << status.reason;
  }
};

constexpr int kFaultNamed = 3;

/// A kernel with memory of its own, which can be made to read where nothing is.
class PlantedOp {
 public:
  PlantedOp(backends::Backend& gpu, const Case& c)
      : kernel_(gpu.make_kernel(c.program, c.program.ops.front())) {
    for (const TensorId id : c.program.ops.front().inputs) {
      memory_.emplace_back(gpu, static_cast<std::size_t>(c.program.tensor(id).bytes()));
      in_.push_back(memory_.back().data());
    }
    for (const TensorId id : c.program.ops.front().outputs) {
      memory_.emplace_back(gpu, static_cast<std::size_t>(c.program.tensor(id).bytes()));
      out_.push_back(memory_.back().data());
    }
  }
  void submit() { kernel_({.in = in_, .out = out_}); }
  void break_input() { in_.front() = reinterpret_cast<void*>(std::uintptr_t{4096}); }
  [[nodiscard]] void* input(std::size_t i) const { return in_.at(i); }

 private:
  backends::Kernel kernel_;
  std::vector<backends::Allocation> memory_;
  std::vector<void*> in_, out_;
};

/// Ends the process: kFaultNamed when the message says all of `words`.
[[noreturn]] void expect_message(const std::function<void()>& run, const std::vector<std::string>& words) {
  try {
    run();
  } catch (const core::Unavailable& error) {
    const std::string text = error.what();
    std::fprintf(stderr, "%s\n", text.c_str());
    bool good = text.find('\n') == std::string::npos;
    for (const std::string& word : words) good = good && text.find(word) != std::string::npos;
    std::_Exit(good ? kFaultNamed : 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "another exception: %s\n", error.what());
  }
  std::_Exit(2);
}

TEST_F(CudaFault, TheOpThatFaultedIsNamed) {
  EXPECT_EXIT(
      {
        const auto gpu = make_cuda_backend(0, {});
        PlantedOp good(*gpu, find_case(kTypical, "gelu"));
        PlantedOp bad(*gpu, find_case(kTypical, "swiglu"));
        PlantedOp after(*gpu, find_case(kTypical, "gelu"));
        bad.break_input();
        expect_message(
            [&] {
              good.submit();
              bad.submit();
              after.submit();
              gpu->synchronize();
            },
            {"swiglu", "illegal memory access"});
      },
      testing::ExitedWithCode(kFaultNamed), "swiglu");
}

/// In a recording every 64th op is marked: the message says from where on, and how to find out.
TEST_F(CudaFault, AFaultInAReplayIsPlacedAndSaysWhatToDo) {
  EXPECT_EXIT(
      {
        const auto gpu = make_cuda_backend(0, {});
        PlantedOp good(*gpu, find_case(kTypical, "gelu"));
        PlantedOp bad(*gpu, find_case(kTypical, "swiglu"));
        good.submit();
        bad.submit();
        gpu->synchronize();
        bad.break_input();
        constexpr int kMany = 100;  // the mark is written beside them
        const auto recording = gpu->record(
            [&](const auto& /*submitted*/) {
              for (int i = 0; i < kMany; ++i) good.submit();
              bad.submit();
            },
            backends::Overlap::none);
        expect_message(
            [&] {
              recording->replay([] {});
              gpu->synchronize();
            },
            {"gelu", "or one of the 64 ops after it", "illegal memory access", "CUDA_LAUNCH_BLOCKING=1"});
      },
      testing::ExitedWithCode(kFaultNamed), "illegal memory access");
}

TEST_F(CudaFault, BlockingLaunchesRecordNothingAndNameEveryFault) {
  EXPECT_EXIT(
      {
        setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
        const auto gpu = make_cuda_backend(0, {});
        PlantedOp bad(*gpu, find_case(kTypical, "swiglu"));
        bad.submit();
        gpu->synchronize();
        if (gpu->record([&](const auto& /*submitted*/) { bad.submit(); }, backends::Overlap::none) != nullptr)
          std::_Exit(1);
        bad.break_input();
        expect_message(
            [&] {
              bad.submit();
              gpu->synchronize();
            },
            {"swiglu", "illegal memory access"});
      },
      testing::ExitedWithCode(kFaultNamed), "swiglu");
}

/// An op that reads ids, its first one; `input` is their place.
void expect_bad_id(const std::string& name, std::size_t input, std::int32_t bad, const std::string& what) {
  const auto gpu = make_cuda_backend(0, {});
  const Case c = find_case(kTypical, name);
  PlantedOp op(*gpu, c);
  const auto count =
      static_cast<std::size_t>(c.program.tensor(c.program.ops.front().inputs.at(input)).shape.numel());
  std::vector<std::int32_t> ids(count, 1);
  const auto run = [&] {
    gpu->copy_in(op.input(input), ids.data(), ids.size() * sizeof(std::int32_t));
    op.submit();
    gpu->synchronize();
  };
  EXPECT_NO_THROW(run()) << name;
  ids.at(7) = bad;
  ids.at(9) = bad + 1;
  try {
    run();
    FAIL() << what << " " << bad << " was taken";
  } catch (const core::InputError& error) {
    EXPECT_NE(std::string(error.what()).find(what + " 7 of the batch is " + std::to_string(bad)),
              std::string::npos)
        << error.what();
  }
  ids.at(7) = ids.at(9) = 0;
  EXPECT_NO_THROW(run()) << "the device goes on";
}

TEST_F(CudaFault, IdsOutsideOfTheVocabularyAreNamed) {
  const auto vocab = static_cast<std::int32_t>(kTypical.vocab);
  expect_bad_id("embedding tied", 0, vocab, "token");
  expect_bad_id("embedding tied", 0, -3, "token");
  expect_bad_id("embedding_positions", 0, vocab + 5, "token");
  expect_bad_id("cross_entropy", 1, vocab, "target");
  expect_bad_id("cross_entropy_with_gradient", 1, vocab, "target");
}

TEST_F(CudaFault, AFullGpuIsOutOfMemory) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);  // of several, another may be current
  std::vector<void*> taken;
  for (std::size_t bytes = std::size_t{64} << 30U; bytes >= std::size_t{1} << 20U;) {
    void* data = nullptr;
    if (cudaMalloc(&data, bytes) == cudaSuccess) {
      taken.push_back(data);
    } else {
      static_cast<void>(cudaGetLastError());
      bytes /= 2;
    }
  }
  EXPECT_THROW(static_cast<void>(make_cuda_backend(0, {})), core::OutOfMemory);
  for (void* data : taken) EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_NO_THROW(static_cast<void>(make_cuda_backend(0, {})));
}

/// Without a GPU, too: what the driver's errors are turned into.
TEST(CudaErrors, AreOneLineThatSaysWhatToDo) {
  using backends::cuda::explain;
  EXPECT_NE(explain(cudaErrorNoKernelImageForDevice).find("ROOFLM_CUDA_ARCHITECTURES"), std::string::npos);
  EXPECT_NE(explain(cudaErrorInsufficientDriver).find("rooflm was built with CUDA"), std::string::npos);
  EXPECT_NE(explain(cudaErrorDevicesUnavailable).find("another process"), std::string::npos);
  EXPECT_NE(explain(cudaErrorMemoryAllocation).find("other programs"), std::string::npos);
  for (const cudaError_t error : {cudaErrorNoKernelImageForDevice, cudaErrorInsufficientDriver,
                                  cudaErrorDevicesUnavailable, cudaErrorNoDevice, cudaErrorIllegalAddress}) {
    EXPECT_EQ(explain(error).find('\n'), std::string::npos);
  }
  EXPECT_TRUE(backends::cuda::is_fault(cudaErrorIllegalAddress));
  EXPECT_FALSE(backends::cuda::is_fault(cudaErrorMemoryAllocation));
}

}  // namespace
}  // namespace rooflm::tests
