// What NVTX (version 3) and a tool that is loaded for it agree on: numbers, layouts and types of functions.
// Declared here, so that the library is built where no CUDA toolkit is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rooflm::inject::nvtx {

union Message {
  const char* narrow;
  const wchar_t* wide;
  const void* registered;
};

union Payload {
  std::uint64_t whole;
  std::int64_t signed_whole;
  double number;
  std::uint32_t half;
  std::int32_t signed_half;
  float small_number;
};

enum MessageType : std::int32_t { kNoMessage = 0, kNarrow = 1, kWide = 2, kRegistered = 3 };
enum PayloadType : std::int32_t {
  kNoPayload = 0,
  kUint64 = 1,
  kInt64 = 2,
  kDouble = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat = 6,
  kExtended = static_cast<std::int32_t>(0xDFBD0009)  ///< `payload` is the address of ExtendedPayloads
};

/// Data with a schema, of which an event has `Event::reserved`.
struct ExtendedPayload {
  std::uint64_t schema;
  std::size_t bytes;
  const void* data;
};
/// Schemas that programs number by themselves begin here.
constexpr std::uint64_t kFirstOwnSchema = std::uint64_t{1} << 24U;

struct Event {
  std::uint16_t version, size;
  std::uint32_t category;
  std::int32_t color_type;
  std::uint32_t color;
  std::int32_t payload_type, reserved;
  Payload payload;
  std::int32_t message_type;
  Message message;
};

constexpr std::uint32_t kCallbacksTable = 1;
constexpr int kCore = 1;  ///< modules of functions
constexpr int kCore2 = 5;

/// Places in the table of the module kCore.
enum CoreCall : unsigned {
  kMarkEx = 1,
  kMarkA,
  kMarkW,
  kRangeStartEx,
  kRangeStartA,
  kRangeStartW,
  kRangeEnd,
  kRangePushEx,
  kRangePushA,
  kRangePushW,
  kRangePop,
  kNameOsThreadA = 14
};
/// Places in the table of the module kCore2.
enum Core2Call : unsigned {
  kDomainMarkEx = 1,
  kDomainRangeStartEx,
  kDomainRangeEnd,
  kDomainRangePushEx,
  kDomainRangePop,
  kDomainRegisterStringA = 10,
  kDomainRegisterStringW,
  kDomainCreateA,
  kDomainCreateW,
  kDomainDestroy
};

using Function = void (*)();
using FunctionTable = Function**;
struct Callbacks {
  std::size_t bytes;
  int (*module_table)(int module, FunctionTable* table, unsigned* size);
};
using ExportTable = const void* (*)(std::uint32_t table);

}  // namespace rooflm::inject::nvtx
