// Converts CUPTI's records to plain ones.
#include "trace/cupti/decode.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

namespace rooflm::trace {
namespace {

std::string demangled(const char* name) {
  if (name == nullptr) return "unknown kernel";
  // A demangler would take other names for types: "f" becomes "float".
  if (!std::string_view(name).starts_with("_Z")) return name;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 && text != nullptr ? text.get() : name;
}

const char* direction_of(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "copy device to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return "copy host to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "copy device to peer";
    default:
      return "copy";
  }
}

const char* kind_of_memory(CUpti_ActivityMemoryKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE:
      return "pageable";
    case CUPTI_ACTIVITY_MEMORY_KIND_PINNED:
      return "pinned";
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC:
      return "managed";
    case CUPTI_ACTIVITY_MEMORY_KIND_ARRAY:
      return "array";
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC:
      return "static device";
    default:
      return "device";
  }
}

const char* wait_of(CUpti_ActivitySynchronizationType type) {
  switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
      return "wait for an event";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT:
      return "stream waits for an event";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
      return "wait for a stream";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE:
      return "wait for the device";
    default:
      return "wait";
  }
}

const char* overhead_of(CUpti_ActivityOverheadKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER:
      return "driver compiles";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH:
      return "CUPTI flushes buffers";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION:
      return "CUPTI instruments";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE:
      return "CUPTI takes resources";
    case CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING:
    case CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING:
      return "driver loads code";
    case CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL:
      return "command buffer is full";
    case CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST:
      return "CUPTI asks for a buffer";
    default:
      return "CUPTI";
  }
}

/// The operation and the kind of memory: "allocate device memory of a pool".
std::string memory_text(const CUpti_ActivityMemory4& record) {
  const bool is_free = record.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  const bool is_of_pool = record.memoryPoolConfig.memoryPoolType != CUPTI_ACTIVITY_MEMORY_POOL_TYPE_INVALID;
  return std::string(is_free ? "free " : "allocate ") + kind_of_memory(record.memoryKind) + " memory" +
         (is_of_pool ? " of a pool" : "");
}

/// "cudaGraphLaunch" of "cudaGraphLaunch_v10000".
std::string without_version(std::string_view name) {
  const std::size_t at = name.rfind("_v");
  const bool is_version = at != std::string_view::npos && at + 2 < name.size() &&
                          name.substr(at + 2).find_first_not_of("0123456789") == std::string_view::npos;
  return std::string(is_version ? name.substr(0, at) : name);
}

std::optional<std::uint64_t> node_of(std::uint64_t node, std::uint32_t graph) {
  return graph == 0 && node == 0 ? std::nullopt : std::optional(node);
}

}  // namespace

void ActivityDecoder::add(std::uint8_t* buffer, std::size_t bytes) {
  CUpti_Activity* record = nullptr;
  while (next_(buffer, bytes, &record) == CUPTI_SUCCESS) add(*record);
}

void ActivityDecoder::add(const CUpti_Activity& record) {
  // The first field is the record's kind; CUPTI packs records back to back.
  const auto* address = static_cast<const void*>(&record);
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return add_kernel(*static_cast<const CUpti_ActivityKernel10*>(address));
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return add_copy(*static_cast<const CUpti_ActivityMemcpy6*>(address));
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return add_peer_copy(*static_cast<const CUpti_ActivityMemcpyPtoP4*>(address));
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return add_memset(*static_cast<const CUpti_ActivityMemset4*>(address));
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return add_call(*static_cast<const CUpti_ActivityAPI*>(address));
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return add_sync(*static_cast<const CUpti_ActivitySynchronization2*>(address));
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return add_overhead(*static_cast<const CUpti_ActivityOverhead3*>(address));
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return add_memory(*static_cast<const CUpti_ActivityMemory4*>(address));
    default:
      ++trace_.ignored;
  }
}

void ActivityDecoder::add_kernel(const CUpti_ActivityKernel10& record) {
  DeviceActivity activity{.kind = ActivityKind::kernel,
                          .device = record.deviceId,
                          .stream = record.streamId,
                          .correlation = record.correlationId,
                          .graph_node = node_of(record.graphNodeId, record.graphId),
                          .launch = trace_.launches.size()};
  trace_.launches.push_back({.grid = {record.gridX, record.gridY, record.gridZ},
                             .block = {record.blockX, record.blockY, record.blockZ},
                             .cluster = {record.clusterX, record.clusterY, record.clusterZ},
                             .registers = record.registersPerThread,
                             .shared_static = record.staticSharedMemory,
                             .shared_dynamic = record.dynamicSharedMemory,
                             .local = record.localMemoryPerThread});
  const auto [name, is_new] = kernel_names_.try_emplace(record.name);
  if (is_new || (record.name != nullptr && name->second.mangled != record.name)) {
    name->second = {.mangled = record.name == nullptr ? "" : record.name, .text = demangled(record.name)};
  }
  keep(activity, record.start, record.end, name->second.text);
}

void ActivityDecoder::add_copy(const CUpti_ActivityMemcpy6& record) {
  keep({.kind = ActivityKind::copy,
        .device = record.deviceId,
        .stream = record.streamId,
        .correlation = record.correlationId,
        .graph_node = node_of(record.graphNodeId, record.graphId),
        .bytes = static_cast<std::int64_t>(record.bytes)},
       record.start, record.end, direction_of(record.copyKind));
}

void ActivityDecoder::add_peer_copy(const CUpti_ActivityMemcpyPtoP4& record) {
  keep({.kind = ActivityKind::copy,
        .device = record.deviceId,
        .stream = record.streamId,
        .correlation = record.correlationId,
        .graph_node = node_of(record.graphNodeId, record.graphId),
        .bytes = static_cast<std::int64_t>(record.bytes)},
       record.start, record.end, direction_of(CUPTI_ACTIVITY_MEMCPY_KIND_PTOP));
}

void ActivityDecoder::add_memset(const CUpti_ActivityMemset4& record) {
  keep({.kind = ActivityKind::memset,
        .device = record.deviceId,
        .stream = record.streamId,
        .correlation = record.correlationId,
        .graph_node = node_of(record.graphNodeId, record.graphId),
        .bytes = static_cast<std::int64_t>(record.bytes)},
       record.start, record.end, "memset");
}

void ActivityDecoder::add_call(const CUpti_ActivityAPI& record) {
  const auto domain =
      record.kind == CUPTI_ACTIVITY_KIND_DRIVER ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
  const char* name = call_name_(domain, record.cbid);
  keep({.kind = ActivityKind::api, .thread = record.threadId, .correlation = record.correlationId},
       record.start, record.end, name == nullptr ? "unknown call" : without_version(name));
}

void ActivityDecoder::add_sync(const CUpti_ActivitySynchronization2& record) {
  keep({.kind = ActivityKind::sync, .correlation = record.correlationId}, record.start, record.end,
       wait_of(record.type));
}

void ActivityDecoder::add_overhead(const CUpti_ActivityOverhead3& record) {
  keep({.kind = ActivityKind::overhead}, record.start, record.end, overhead_of(record.overheadKind));
}

void ActivityDecoder::add_memory(const CUpti_ActivityMemory4& record) {
  const bool is_free = record.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  const auto bytes = static_cast<std::int64_t>(record.bytes);
  keep({.kind = ActivityKind::memory,
        .device = record.deviceId,
        .stream = record.streamId,
        .correlation = record.correlationId,
        .bytes = is_free ? -bytes : bytes,
        .address = record.address},
       record.timestamp, record.timestamp, memory_text(record));
}

void ActivityDecoder::keep(DeviceActivity activity, std::uint64_t start, std::uint64_t end,
                           const std::string& name) {
  if (start == 0 || end < start) {
    ++trace_.dropped;
    return;
  }
  activity.start_ns = static_cast<std::int64_t>(start);
  activity.end_ns = static_cast<std::int64_t>(end);
  activity.name = index_of(name);
  trace_.activities.push_back(activity);
}

std::size_t ActivityDecoder::index_of(const std::string& name) {
  const auto [entry, is_new] = names_.try_emplace(name, trace_.names.size());
  if (is_new) trace_.names.push_back(name);
  return entry->second;
}

DeviceTrace ActivityDecoder::take() {
  names_.clear();
  return std::exchange(trace_, {});
}

}  // namespace rooflm::trace
