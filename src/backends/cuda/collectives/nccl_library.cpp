// NCCL, opened when it is first needed: rooflm runs where it is missing.
#include "backends/cuda/collectives/nccl_library.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/printable.h"
#include "core/system/shared_library.h"

namespace rooflm::backends::cuda {
namespace {

NcclLibrary load() {
  const core::SharedLibrary library("NCCL", {"libnccl.so.2"});
  NcclLibrary n;
  library.need("ncclGetVersion", n.get_version);
  library.need("ncclGetUniqueId", n.get_unique_id);
  library.need("ncclCommInitRank", n.comm_init_rank);
  library.need("ncclCommDestroy", n.comm_destroy);
  library.need("ncclCommAbort", n.comm_abort);
  library.need("ncclCommGetAsyncError", n.comm_get_async_error);
  library.need("ncclGetErrorString", n.get_error_string);
  n.get_last_error = library.find<nccl::GetLastError*>("ncclGetLastError");
  library.need("ncclGroupStart", n.group_start);
  library.need("ncclGroupEnd", n.group_end);
  library.need("ncclAllReduce", n.all_reduce);
  library.need("ncclAllGather", n.all_gather);
  library.need("ncclReduceScatter", n.reduce_scatter);
  library.need("ncclBroadcast", n.broadcast);
  library.need("ncclReduce", n.reduce);
  library.need("ncclSend", n.send);
  library.need("ncclRecv", n.recv);
  n.comm_init_rank_config = library.find<nccl::CommInitRankConfig*>("ncclCommInitRankConfig");
  n.all_to_all = library.find<nccl::AllToAll*>("ncclAlltoAll");
  n.mem_alloc = library.find<nccl::MemAlloc*>("ncclMemAlloc");
  n.mem_free = library.find<nccl::MemFree*>("ncclMemFree");
  n.window_register = library.find<nccl::CommWindowRegister*>("ncclCommWindowRegister");
  n.window_deregister = library.find<nccl::CommWindowDeregister*>("ncclCommWindowDeregister");
  n.check(n.get_version(&n.version), "asking for the version");
  return n;
}

}  // namespace

std::string NcclLibrary::version_text() const {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void NcclLibrary::check(nccl::Result result, std::string_view what) const {
  if (result == nccl::kSuccess) return;
  const char* told = get_last_error == nullptr ? nullptr : get_last_error(nullptr);
  const std::string detail = told == nullptr ? "" : told;
  const std::string words = fmt::format("NCCL: {}: {}{}{}", what, get_error_string(result),
                                        detail.empty() ? "" : "; ", core::printable(detail));
  if (detail.find("out of memory") != std::string::npos) throw core::OutOfMemory(words, 0);
  throw core::Unavailable(words + " (NCCL_DEBUG=WARN tells more)");
}

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = load();
  return library;
}

}  // namespace rooflm::backends::cuda
