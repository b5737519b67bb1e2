// What hardware counted, why ops take longer than they need and the run at a glance, as parts of the
// document.
#include <map>
#include <utility>
#include <vector>

#include "report/findings/glance.h"
#include "report/findings/why.h"
#include "report/model/counted.h"
#include "report/page/columns.h"
#include "report/page/document_run.h"
#include "report/views/view.h"

namespace rooflm::report {
Json json_counted(const RunData& run) {
  const std::map<std::int64_t, Counted> ops = counted_ops(run);
  if (ops.empty()) return nullptr;
  Names names;
  Columns columns({"op", "flop", "flop_per_s", "dram_bytes", "l2_bytes", "l1_bytes", "dram_intensity",
                   "l2_intensity", "l1_intensity", "tensor_active", "l1_hit_share", "l2_hit_share", "stall",
                   "stall_share"});
  for (const auto& [op, counted] : ops) {
    const TimedOp* timed = run.find_op(op);
    const auto flop = counted.all_flop();
    const double device_s = timed != nullptr && timed->time ? timed->time->device_s : 0;
    columns.push("op", op);
    columns.push("flop", json_number(flop));
    columns.push("flop_per_s", flop && device_s > 0 ? json_number(*flop / device_s) : Json());
    const auto push_level = [&](const char* bytes_key, const char* intensity_key,
                                const std::optional<double>& bytes) {
      columns.push(bytes_key, json_number(bytes));
      columns.push(intensity_key, json_number(ratio_of(flop, bytes)));
    };
    push_level("dram_bytes", "dram_intensity", counted.dram_bytes());
    push_level("l2_bytes", "l2_intensity", counted.value("l2_bytes"));
    push_level("l1_bytes", "l1_intensity", counted.value("l1_bytes"));
    columns.push("tensor_active", json_number(counted.share("tensor_active")));
    columns.push("l1_hit_share", json_number(counted.l1_hit_share()));
    columns.push("l2_hit_share", json_number(counted.l2_hit_share()));
    const auto [stall, share] = counted.top_stall();
    columns.push("stall", names.index(stall));
    columns.push("stall_share", stall.empty() ? Json() : json_number(share));
  }
  return std::move(columns).json(&names);
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
    all.push_back({{"phase", why.phase},
                   {"part", why.name},
                   {"ops", why.ops},
                   {"time_s", why.time_s},
                   {"bound", title_of(why.bound())},
                   {"counted", why.is_counted},
                   {"occupancy", json_number(why.occupancy)},
                   {"waves", json_number(why.waves)},
                   {"stall", why.stall},
                   {"causes", std::move(causes)}});
  }
  return all;
}

namespace {

Json json_parts(const GlanceList& list) {
  Json parts = Json::array();
  for (const GlancePart& part : list.parts) {
    parts.push_back({{"name", part.name},
                     {"phase", part.phase},
                     {"seconds", part.seconds},
                     {"share", json_number(part.share)},
                     {"note", part.note}});
  }
  return {{"of", list.of}, {"parts", std::move(parts)}};
}

}  // namespace

Json json_glance(const RunData& run, const std::vector<Why>& parts) {
  const Glance glance = glance_of(run, parts);
  return {{"time", json_parts(glance.time)},
          {"bound", json_parts(glance.bound)},
          {"idle", json_parts(glance.idle)}};
}

}  // namespace rooflm::report
