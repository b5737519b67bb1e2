// Which calls of CUDA are recorded.
#include "inject/cupti/wanted_calls.h"

#include <algorithm>
#include <array>

namespace rooflm::inject {
namespace {

/// Beginnings of names.
constexpr std::array<std::string_view, 10> kStart = {
    "cudaLaunchKernel", "cudaLaunchCooperative", "cudaGraphLaunch", "cudaMemcpy", "cudaMemset",
    "cuLaunchKernel",   "cuLaunchCooperative",   "cuGraphLaunch",   "cuMemcpy",   "cuMemset"};
constexpr std::array<std::string_view, 17> kMatter = {"cudaMalloc",
                                                      "cudaFree",
                                                      "cudaHostAlloc",
                                                      "cudaHostRegister",
                                                      "cudaGraphInstantiate",
                                                      "cudaStreamBeginCapture",
                                                      "cudaStreamEndCapture",
                                                      "cuStreamBeginCapture",
                                                      "cuMemAlloc",
                                                      "cuMemFree",
                                                      "cuMemHostAlloc",
                                                      "cuMemCreate",
                                                      "cuMemMap",
                                                      "cuGraphInstantiate",
                                                      "cuModuleLoad",
                                                      "cuLibraryLoad",
                                                      "cuCtxCreate"};
/// Whole names.
constexpr std::array<std::string_view, 7> kWaits = {
    "cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cuStreamSynchronize",
    "cuEventSynchronize",    "cuCtxSynchronize",     "cudaStreamWaitEvent"};

template <class Names>
bool begins(std::string_view call, const Names& names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return call.starts_with(name); });
}

}  // namespace

bool starts_work(std::string_view call) {
  // They only ask or describe.
  const bool only_describes = call.find("Node") != std::string_view::npos ||
                              call.find("Attribute") != std::string_view::npos ||
                              call.find("cudaMemcpyToArray") != std::string_view::npos;
  return begins(call, kStart) && !only_describes;
}

bool matters(std::string_view call) {
  return starts_work(call) || begins(call, kMatter) || std::ranges::find(kWaits, call) != kWaits.end();
}

std::string_view plain_name(std::string_view call) {
  const std::size_t at = call.rfind("_v");
  const bool has_version = at != std::string_view::npos && at + 2 < call.size() &&
                           call.find_first_not_of("0123456789", at + 2) == std::string_view::npos;
  if (has_version) call = call.substr(0, at);
  for (const std::string_view end : {"_ptsz", "_ptds"}) {
    if (call.ends_with(end)) call.remove_suffix(end.size());
  }
  return call;
}

}  // namespace rooflm::inject
