// Buffers as CUPTI fills them, record after record, through the decoder; and the pool that they are from.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "trace/cupti/activity_buffers.h"
#include "trace/cupti/decode.h"
#include "trace/step_trace.h"

namespace rooflm::trace {
namespace {

std::size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return sizeof(CUpti_ActivityOverhead3);
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return sizeof(CUpti_ActivityMemory4);
    default:
      return sizeof(CUpti_ActivityAPI);
  }
}

/// Walks a buffer as cuptiActivityGetNextRecord does.
CUptiResult next_record(std::uint8_t* buffer, std::size_t bytes, CUpti_Activity** record) {
  std::uint8_t* next = buffer;
  if (*record != nullptr) next = reinterpret_cast<std::uint8_t*>(*record) + size_of((*record)->kind);
  if (next >= buffer + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

const char* call_name(CUpti_CallbackDomain domain, std::uint32_t call) {
  if (call == 0) return nullptr;
  return domain == CUPTI_CB_DOMAIN_DRIVER_API ? "cuLaunchKernel" : "cudaGraphLaunch_v10000";
}

/// A buffer of records.
class Buffer {
 public:
  template <class Record>
  void add(const Record& record) {
    const std::size_t at = bytes_;
    bytes_ += sizeof(Record);
    std::memcpy(reinterpret_cast<std::uint8_t*>(memory_.data()) + at, &record, sizeof(Record));
  }
  DeviceTrace decode() {
    ActivityDecoder decoder(next_record, call_name);
    decoder.add(reinterpret_cast<std::uint8_t*>(memory_.data()), bytes_);
    return decoder.take();
  }

 private:
  std::array<std::uint64_t, 4096> memory_{};
  std::size_t bytes_ = 0;
};

CUpti_ActivityKernel10 kernel_record(const char* name, std::uint64_t start, std::uint64_t end) {
  CUpti_ActivityKernel10 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.name = name;
  record.start = start;
  record.end = end;
  record.gridX = 33;
  record.gridY = record.gridZ = record.blockY = record.blockZ = 1;
  record.blockX = 256;
  record.clusterX = 2;
  record.registersPerThread = 168;
  record.dynamicSharedMemory = 1024;
  record.streamId = 13;
  record.correlationId = 9;
  record.graphId = 3;
  record.graphNodeId = (std::uint64_t{3} << 32U) + 5;
  return record;
}

TEST(CuptiDecode, KernelsBringTheirLaunchNodeAndName) {
  Buffer buffer;
  buffer.add(kernel_record("_ZN6rooflm4normIfEEvPT_", 1000, 2500));
  buffer.add(kernel_record("nvjet_tst_128x256_64x4_2x1_v_bz_TNT", 2500, 4000));
  const DeviceTrace trace = buffer.decode();
  ASSERT_EQ(trace.activities.size(), 2U);
  EXPECT_EQ(trace.names.at(trace.activities[0].name), "void rooflm::norm<float>(float*)");
  EXPECT_EQ(trace.names.at(trace.activities[1].name), "nvjet_tst_128x256_64x4_2x1_v_bz_TNT");
  EXPECT_EQ(trace.activities[0].end_ns - trace.activities[0].start_ns, 1500);
  EXPECT_EQ(trace.activities[0].graph_node, (std::uint64_t{3} << 32U) + 5);
  const KernelLaunch& launch = trace.launches.at(*trace.activities[0].launch);
  EXPECT_EQ(launch.blocks(), 33);
  EXPECT_EQ(launch.threads(), 256);
  EXPECT_EQ(launch.cluster[0], 2);
  EXPECT_EQ(launch.registers, 168);
}

TEST(CuptiDecode, TheFirstNodeOfAGraphIsANodeAndALaunchOutsideIsNone) {
  auto first = kernel_record("a", 1, 2);
  first.graphNodeId = 0;
  auto outside = kernel_record("b", 3, 4);
  outside.graphNodeId = 0;
  outside.graphId = 0;
  Buffer buffer;
  buffer.add(first);
  buffer.add(outside);
  const DeviceTrace trace = buffer.decode();
  EXPECT_EQ(trace.activities.at(0).graph_node, 0U);
  EXPECT_FALSE(trace.activities.at(1).graph_node.has_value());
}

TEST(CuptiDecode, ARecordWithoutTimesIsCountedAsLost) {
  Buffer buffer;
  buffer.add(kernel_record("a", 0, 0));
  buffer.add(kernel_record("b", 10, 5));
  buffer.add(kernel_record("c", 10, 20));
  const DeviceTrace trace = buffer.decode();
  EXPECT_EQ(trace.activities.size(), 1U);
  EXPECT_EQ(trace.dropped, 2);
}

TEST(CuptiDecode, CopiesCallsAndWaitsAreKept) {
  Buffer buffer;
  CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.bytes = 4096;
  copy.start = 5;
  copy.end = 9;
  buffer.add(copy);
  CUpti_ActivityMemset4 fill{};
  fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  fill.bytes = 64;
  fill.start = 9;
  fill.end = 10;
  buffer.add(fill);
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  call.cbid = 311;
  call.start = 1;
  call.end = 4;
  call.threadId = 77;
  call.correlationId = 9;
  buffer.add(call);
  CUpti_ActivitySynchronization2 wait{};
  wait.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
  wait.start = 10;
  wait.end = 30;
  buffer.add(wait);
  CUpti_ActivityAPI other{};
  other.kind = CUPTI_ACTIVITY_KIND_NAME;
  buffer.add(other);
  const DeviceTrace trace = buffer.decode();
  ASSERT_EQ(trace.activities.size(), 4U);
  EXPECT_EQ(trace.names.at(trace.activities[0].name), "copy host to device");
  EXPECT_EQ(trace.activities[0].bytes, 4096);
  EXPECT_EQ(trace.activities[1].kind, ActivityKind::memset);
  EXPECT_EQ(trace.names.at(trace.activities[2].name), "cudaGraphLaunch");
  EXPECT_EQ(trace.activities[2].thread, 77);
  EXPECT_EQ(trace.names.at(trace.activities[3].name), "wait for a stream");
  EXPECT_EQ(trace.ignored, 1);
}

TEST(CuptiDecode, MemoryThatIsTakenAndGivenBackIsAMoment) {
  Buffer buffer;
  CUpti_ActivityMemory4 memory{};
  memory.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  memory.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  memory.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  memory.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  memory.address = 0x7f00;
  memory.bytes = 4096;
  memory.timestamp = 11;
  memory.correlationId = 9;
  buffer.add(memory);
  memory.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  memory.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  memory.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_INVALID;
  buffer.add(memory);
  const DeviceTrace trace = buffer.decode();
  ASSERT_EQ(trace.activities.size(), 2U);
  EXPECT_EQ(trace.names.at(trace.activities[0].name), "allocate device memory of a pool");
  EXPECT_EQ(trace.names.at(trace.activities[1].name), "free pinned memory");
  EXPECT_EQ(trace.activities[0].bytes, 4096);
  EXPECT_EQ(trace.activities[1].bytes, -4096);
  EXPECT_EQ(trace.activities[0].address, 0x7f00U);
  EXPECT_EQ(trace.activities[0].start_ns, 11);
  EXPECT_EQ(trace.activities[0].end_ns, 11);
}

TEST(CuptiDecode, ATakenTraceLeavesTheDecoderEmpty) {
  std::array<CUpti_ActivityKernel10, 1> record{kernel_record("a", 1, 2)};
  ActivityDecoder decoder(next_record, call_name);
  auto* data = reinterpret_cast<std::uint8_t*>(record.data());
  decoder.add(data, sizeof(record));
  EXPECT_EQ(decoder.take().activities.size(), 1U);
  EXPECT_TRUE(decoder.take().activities.empty());
  decoder.add(data, sizeof(record));
  const DeviceTrace again = decoder.take();
  EXPECT_EQ(again.names.at(again.activities.at(0).name), "a");
}

TEST(CuptiDecode, DecodedKernelsFindTheirOps) {
  Buffer buffer;
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  call.cbid = 311;
  call.start = 100;
  call.end = 200;
  call.correlationId = 9;
  buffer.add(call);
  buffer.add(kernel_record("a", 300, 400));
  NodeOps nodes;
  nodes.add((std::uint64_t{1} << 32U) + 5, 21);
  const std::vector<TracedStep> steps = {{.step = 0, .begin_ns = 50, .end_ns = 500, .nodes = &nodes}};
  const TraceRows rows = rows_of(buffer.decode(), steps, 0, "cuda");
  EXPECT_EQ(rows.kernels, 1);
  EXPECT_EQ(rows.without_op, 0);
  EXPECT_EQ(rows.activities.back().op, 21);
}

TEST(ActivityBuffers, OnesThatAreNotThereAreRefusedAndCounted) {
  ActivityBuffers buffers(2, 1024);
  std::uint8_t* first = buffers.request();
  std::uint8_t* second = buffers.request();
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(buffers.request(), nullptr);
  EXPECT_EQ(buffers.refused(), 1);
  buffers.complete(first, 100);
  const auto filled = buffers.take_filled();
  ASSERT_EQ(filled.size(), 1U);
  EXPECT_EQ(filled[0].bytes, 100U);
  EXPECT_EQ(buffers.request(), nullptr);
  buffers.release(filled[0].data);
  EXPECT_EQ(buffers.request(), first);
}

}  // namespace
}  // namespace rooflm::trace
