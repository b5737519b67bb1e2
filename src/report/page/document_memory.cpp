// The memory of a run, as a part of the document.
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "report/model/memory_curve.h"
#include "report/page/columns.h"
#include "report/page/document_run.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

Json json_tensors(const RunData& run) {
  Names names;
  Columns columns({"name", "role", "bytes", "first_op", "last_op", "offset", "scope"});
  for (const record::Tensor& tensor : run.tensors) {
    const TimedOp* maker = run.find_op(tensor.first_op);
    columns.push("name", names.index(tensor.name));
    columns.push("role", names.index(tensor.role));
    columns.push("bytes", tensor.bytes);
    columns.push("first_op", tensor.first_op);
    columns.push("last_op", tensor.last_op);
    columns.push("offset", tensor.offset ? Json(*tensor.offset) : Json());
    columns.push("scope", names.index(maker == nullptr ? "" : maker->op.scope));
  }
  return std::move(columns).json(&names);
}

/// Places of tensors among those of the document, by their number in the record.
std::unordered_map<std::int64_t, std::int64_t> places_of(const RunData& run) {
  std::unordered_map<std::int64_t, std::int64_t> places;
  for (const record::Tensor& tensor : run.tensors) {
    places.try_emplace(tensor.tensor, static_cast<std::int64_t>(places.size()));
  }
  return places;
}

/// Events name tensors by their place among the tensors of the document; -1 for one that is not there.
Json json_memory_events(const RunData& run) {
  const auto place = places_of(run);
  Columns columns({"op", "tensor", "bytes", "live_bytes"});
  for (const record::MemoryEvent& event : run.memory_events) {
    const auto found = event.tensor ? place.find(*event.tensor) : place.end();
    columns.push("op", event.op.value_or(-1));
    columns.push("tensor", found == place.end() ? -1 : found->second);
    columns.push("bytes", event.bytes);
    columns.push("live_bytes", event.live_bytes);
  }
  return std::move(columns).json(nullptr);
}

/// What is alive at the peak, largest first.
Json json_holders(const RunData& run, const MemoryCurve& curve) {
  const auto place = places_of(run);
  Columns columns({"tensor", "bytes", "share"});
  for (const Holder& holder : curve.holders(curve.peak_event())) {
    columns.push("tensor", place.at(holder.tensor->tensor));
    columns.push("bytes", holder.bytes);
    columns.push("share", json_number(holder.share));
  }
  return std::move(columns).json(nullptr);
}

}  // namespace

Json json_memory(const RunData& run) {
  const MemoryCurve curve(run);
  if (curve.empty()) return nullptr;
  std::map<std::string, std::int64_t> persistent;
  std::int64_t persistent_bytes = 0;
  for (const record::Tensor& tensor : run.tensors) {
    if (tensor.first_op >= 0) continue;
    persistent[tensor.role] += tensor.bytes;
    persistent_bytes += tensor.bytes;
  }
  const auto by_role = [](const std::map<std::string, std::int64_t>& bytes_of) {
    Json roles = Json::array();
    for (const auto& [role, bytes] : bytes_of) roles.push_back({{"role", role}, {"bytes", bytes}});
    return roles;
  };
  return {{"persistent", by_role(persistent)},
          {"persistent_bytes", persistent_bytes},
          {"persistent_share", json_number(ratio_of(static_cast<double>(persistent_bytes),
                                                    static_cast<double>(curve.peak_bytes())))},
          {"peak_roles", by_role(curve.peak_by_role())},
          {"peak_holders", json_holders(run, curve)},
          {"peak_bytes", curve.peak_bytes()},
          {"peak_event", curve.peak_event()},
          {"events", json_memory_events(run)},
          {"tensors", json_tensors(run)}};
}

}  // namespace rooflm::report
