// What hardware counted, why ops take longer than they need and the run at a glance, as parts of the
// document.
#include <map>
#include <utility>
#include <vector>

#include "report/model/counted.h"
#include "report/page/columns.h"
#include "report/page/document_run.h"
#include "report/views/view.h"

namespace rooflm::report {
namespace {

/// An op that hardware counted.
struct CountedOp {
  std::int64_t op = 0;
  const Counted* counted = nullptr;
  double device_s = 0;
  [[nodiscard]] std::optional<double> flop() const { return counted->all_flop(); }
  [[nodiscard]] std::optional<double> intensity(const std::optional<double>& bytes) const {
    return ratio_of(flop(), bytes);
  }
};

const TypedColumns<CountedOp>& counted_columns() {
  using Of = CountedOp;
  static const TypedColumns<Of> columns = {
      {"op", &Of::op},
      {"flop", &Of::flop},
      {"flop_per_s",
       [](const Of& one) {
         return one.flop() && one.device_s > 0 ? std::optional(*one.flop() / one.device_s) : std::nullopt;
       }},
      {"dram_bytes", [](const Of& one) { return one.counted->dram_bytes(); }},
      {"l2_bytes", [](const Of& one) { return one.counted->value("l2_bytes"); }},
      {"l1_bytes", [](const Of& one) { return one.counted->value("l1_bytes"); }},
      {"dram_intensity", [](const Of& one) { return one.intensity(one.counted->dram_bytes()); }},
      {"l2_intensity", [](const Of& one) { return one.intensity(one.counted->value("l2_bytes")); }},
      {"l1_intensity", [](const Of& one) { return one.intensity(one.counted->value("l1_bytes")); }},
      {"tensor_active", [](const Of& one) { return one.counted->share("tensor_active"); }},
      {"l1_hit_share", [](const Of& one) { return one.counted->l1_hit_share(); }},
      {"l2_hit_share", [](const Of& one) { return one.counted->l2_hit_share(); }},
      {"stall", [](const Of& one) { return one.counted->top_stall().first; }},
      {"stall_share", [](const Of& one) {
         const auto [stall, share] = one.counted->top_stall();
         return stall.empty() ? std::nullopt : std::optional(share);
       }}};
  return columns;
}

const TypedColumns<Why>& why_columns() {
  static const TypedColumns<Why> columns = {
      {"phase", &Why::phase},        {"part", &Why::name},
      {"time_s", &Why::time_s},      {"bound", [](const Why& why) { return title_of(why.bound()); }},
      {"counted", &Why::is_counted}, {"occupancy", &Why::occupancy},
      {"waves", &Why::waves},        {"stall", &Why::stall}};
  return columns;
}

Json json_parts(const GlanceList& list) {
  static const TypedColumns<GlancePart> columns = {{"name", &GlancePart::name},
                                                   {"phase", &GlancePart::phase},
                                                   {"seconds", &GlancePart::seconds},
                                                   {"share", &GlancePart::share},
                                                   {"note", &GlancePart::note}};
  return {{"of", list.of}, {"parts", json_objects(columns, list.parts)}};
}

}  // namespace

Json json_counted(const RunData& run) {
  const std::map<std::int64_t, Counted> counted = counted_ops(run);
  if (counted.empty()) return nullptr;
  std::vector<CountedOp> ops;
  for (const auto& [op, one] : counted) {
    const TimedOp* timed = run.find_op(op);
    ops.push_back(
        {.op = op, .counted = &one, .device_s = timed != nullptr && timed->time ? timed->time->device_s : 0});
  }
  return json_arrays(counted_columns(), ops);
}

Json json_why(const std::vector<Why>& parts) {
  Json all = Json::array();
  for (const Why& why : parts) {
    Json causes = Json::array();
    for (std::size_t i = 0; i < kCauses; ++i) {
      const auto cause = static_cast<Cause>(i);
      if (why.of(cause) > 0)
        causes.push_back({{"cause", title_of(cause)}, {"seconds", why.of(cause)}, {"mend", mend_of(cause)}});
    }
    all.push_back(json_object(why_columns(), why));
    all.back()["causes"] = std::move(causes);
  }
  return all;
}

Json json_glance(const Glance& glance) {
  return {{"time", json_parts(glance.time)},
          {"bound", json_parts(glance.bound)},
          {"idle", json_parts(glance.idle)}};
}

}  // namespace rooflm::report
