// Buffers as CUPTI fills them, through the injection library's parser to a stream and back.
#include <cupti.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "inject/activity_rows.h"
#include "inject/cupti/wanted_calls.h"
#include "trace/cupti/decode.h"

namespace rooflm::inject {
namespace {

template <class Record>
void put(std::vector<std::uint64_t>& buffer, const Record& record) {
  static_assert(sizeof(Record) % sizeof(std::uint64_t) == 0);
  const std::size_t at = buffer.size();
  buffer.resize(at + sizeof(Record) / sizeof(std::uint64_t));
  std::memcpy(buffer.data() + at, &record, sizeof(Record));
}

std::size_t bytes_of(CUpti_ActivityKind kind) {
  return kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? sizeof(CUpti_ActivityKernel10)
         : kind == CUPTI_ACTIVITY_KIND_MEMCPY2         ? sizeof(CUpti_ActivityMemcpyPtoP4)
                                                       : sizeof(CUpti_ActivityAPI);
}

CUptiResult walk(std::uint8_t* buffer, std::size_t bytes, CUpti_Activity** record) {
  std::uint8_t* next =
      *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + bytes_of((*record)->kind);
  if (next >= buffer + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

TEST(CuptiRows, KernelsOfOneLaunchShareItsTextAndAUsedAddressIsNoName) {
  std::vector<std::uint64_t> buffer;
  std::string name = "first";  // code that is unloaded: another name comes to lie at its address
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.name = name.c_str();
  kernel.start = 1000;
  kernel.end = 1500;
  kernel.gridX = kernel.gridY = kernel.gridZ = 4;
  kernel.blockX = 128;
  kernel.blockY = kernel.blockZ = 1;
  kernel.streamId = 7;
  kernel.correlationId = 3;
  put(buffer, kernel);
  kernel.gridX = 8;
  put(buffer, kernel);
  kernel.start = 0;  // CUPTI could not take its time
  put(buffer, kernel);
  CUpti_ActivityMemcpyPtoP4 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  copy.start = 2000;
  copy.end = 2100;
  copy.bytes = 4096;
  put(buffer, copy);
  trace::ActivityDecoder decoder(walk,
                                 [](CUpti_CallbackDomain, std::uint32_t) { return "cudaLaunchKernel"; });
  const auto decode = [&] {
    decoder.add(reinterpret_cast<std::uint8_t*>(buffer.data()), buffer.size() * sizeof(std::uint64_t));
    return decoder.take();
  };
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("rooflm-rows-" + std::to_string(::getpid()));
  std::string why;
  const auto writer = StreamWriter::create(path.string(), ~std::uint64_t{0}, why);
  ASSERT_NE(writer, nullptr) << why;
  ActivityRows rows(*writer);
  const trace::DeviceTrace trace = decode();
  EXPECT_EQ(trace.dropped, 1);
  ASSERT_EQ(trace.activities.size(), 3U);
  EXPECT_EQ(trace.names.at(trace.activities[2].name), "copy device to peer");
  rows.add(trace);
  const std::uint32_t texts = writer->text("how many texts there are");
  name.replace(0, 5, "other");
  const trace::DeviceTrace again = decode();
  EXPECT_EQ(again.names.at(again.activities[0].name), "other");
  rows.add(again);
  EXPECT_EQ(writer->text("one more"), texts + 2) << "its launches were known: only the name is new";
  std::filesystem::remove(path);
}

TEST(WantedCalls, ThoseThatTakeTimeOrStartWork) {
  EXPECT_EQ(plain_name("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
  EXPECT_EQ(plain_name("cudaLaunchKernel_ptsz_v7000"), "cudaLaunchKernel");
  EXPECT_EQ(plain_name("cuMemAlloc_v2"), "cuMemAlloc");
  EXPECT_TRUE(starts_work("cuLaunchKernelEx"));
  EXPECT_TRUE(starts_work("cudaMemcpyAsync"));
  EXPECT_FALSE(starts_work("cudaGraphMemcpyNodeGetParams"));
  EXPECT_FALSE(starts_work("cudaMalloc"));
  EXPECT_TRUE(matters("cudaMalloc"));
  EXPECT_TRUE(matters("cudaStreamSynchronize"));
  EXPECT_FALSE(matters("cudaGetDevice"));
  EXPECT_FALSE(matters("cudaStreamQuery"));
}

}  // namespace
}  // namespace rooflm::inject
