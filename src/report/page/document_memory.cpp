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
  const TypedColumns<record::Tensor> columns = {{"name", &record::Tensor::name},
                                                {"role", &record::Tensor::role},
                                                {"first_op", &record::Tensor::first_op},
                                                {"last_op", &record::Tensor::last_op},
                                                {"scope", [&](const record::Tensor& tensor) {
                                                   const TimedOp* maker = run.find_op(tensor.first_op);
                                                   return maker == nullptr ? std::string() : maker->op.scope;
                                                 }}};
  return json_arrays(columns, run.tensors);
}

/// Places of tensors among those of the document, by their number in the record.
std::unordered_map<std::int64_t, std::int64_t> places_of(const RunData& run) {
  std::unordered_map<std::int64_t, std::int64_t> places;
  for (const record::Tensor& tensor : run.tensors) {
    places.try_emplace(tensor.tensor, static_cast<std::int64_t>(places.size()));
  }
  return places;
}

/// Without texts.
template <class R, class Values>
Json json_numbers(const TypedColumns<R>& columns, const Values& values) {
  Json json = json_arrays(columns, values);
  json.erase("names");
  return json;
}

/// Events name tensors by their place among the tensors of the document; -1 for one that is not there.
Json json_memory_events(const RunData& run) {
  using Event = record::MemoryEvent;
  const auto place = places_of(run);
  const TypedColumns<Event> columns = {{"op", [](const Event& event) { return event.op.value_or(-1); }},
                                       {"tensor",
                                        [&](const Event& event) {
                                          const auto found =
                                              event.tensor ? place.find(*event.tensor) : place.end();
                                          return found == place.end() ? -1 : found->second;
                                        }},
                                       {"bytes", &Event::bytes},
                                       {"live_bytes", &Event::live_bytes}};
  return json_numbers(columns, run.memory_events);
}

/// What is alive at the peak, largest first.
Json json_holders(const RunData& run, const MemoryCurve& curve) {
  const auto place = places_of(run);
  const TypedColumns<Holder> columns = {
      {"tensor", [&](const Holder& holder) { return place.at(holder.tensor->tensor); }},
      {"bytes", &Holder::bytes},
      {"share", &Holder::share}};
  return json_numbers(columns, curve.holders(curve.peak_event()));
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
