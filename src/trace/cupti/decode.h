// Converts CUPTI's records to plain ones. For files of this folder and their tests only.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>

#include "trace/device_activity.h"

namespace rooflm::trace {

/// As cuptiActivityGetNextRecord.
using NextRecord =
    std::function<CUptiResult(std::uint8_t* buffer, std::size_t bytes, CUpti_Activity** record)>;
/// The name of an API call: "cudaGraphLaunch_v10000"; nullptr if unknown.
using CallName = std::function<const char*(CUpti_CallbackDomain domain, std::uint32_t call)>;

/// Decodes buffers that CUPTI has filled. Demangles kernel names. A record without times (CUPTI could not
/// take them) counts as dropped.
class ActivityDecoder {
 public:
  ActivityDecoder(NextRecord next, CallName call_name)
      : next_(std::move(next)), call_name_(std::move(call_name)) {}
  void add(std::uint8_t* buffer, std::size_t bytes);
  [[nodiscard]] DeviceTrace take();

 private:
  void add(const CUpti_Activity& record);
  void add_kernel(const CUpti_ActivityKernel10& record);
  void add_copy(const CUpti_ActivityMemcpy6& record);
  void add_peer_copy(const CUpti_ActivityMemcpyPtoP4& record);
  void add_memset(const CUpti_ActivityMemset4& record);
  void add_call(const CUpti_ActivityAPI& record);
  void add_sync(const CUpti_ActivitySynchronization2& record);
  void add_overhead(const CUpti_ActivityOverhead3& record);
  void add_memory(const CUpti_ActivityMemory4& record);
  /// Sets times and name; keeps the activity if it has times.
  void keep(DeviceActivity activity, std::uint64_t start, std::uint64_t end, const std::string& name);
  std::size_t index_of(const std::string& name);

  NextRecord next_;
  CallName call_name_;
  DeviceTrace trace_;
  std::unordered_map<std::string, std::size_t> names_;
  /// A kernel name and its demangled form. Programs that load and unload code may reuse an address for
  /// another name.
  struct KernelName {
    std::string mangled, text;
  };
  std::unordered_map<const char*, KernelName> kernel_names_;
};

}  // namespace rooflm::trace
