// The roofs of a foreign program.
#include "cli/foreign_roofs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "core/units.h"
#include "devices/device.h"
#include "lab/ceilings/gpu_ceilings.h"
#include "perfmodel/roofline.h"

namespace rooflm::cli {
namespace {

/// What the datasheet says, where nothing of that kind was measured.
void add_catalog(const std::string& device, const devices::Device& described,
                 std::vector<record::Ceiling>& ceilings) {
  const auto is_known = [&](const auto& matches) { return std::ranges::any_of(ceilings, matches); };
  std::vector<record::Ceiling> added;
  for (const auto& [dtype, rate] : described.peak_flop_per_s) {
    if (is_known([&name = dtype](const record::Ceiling& row) {
          return row.what == "matmul" && row.dtype == name;
        }))
      continue;
    added.push_back({.device = device,
                     .what = "matmul",
                     .dtype = dtype,
                     .value = rate,
                     .unit = "flop/s",
                     .ci_low = rate,
                     .ci_high = rate,
                     .source = "catalog"});
  }
  for (const devices::MemoryLevel& level : described.memory) {
    if (level.byte_per_s <= 0) continue;
    if (is_known([&](const record::Ceiling& row) { return row.level == level.name; })) continue;
    added.push_back({.device = device,
                     .what = "copy",
                     .level = level.name,
                     .value = level.byte_per_s,
                     .unit = "byte/s",
                     .ci_low = level.byte_per_s,
                     .ci_high = level.byte_per_s,
                     .source = "catalog"});
  }
  ceilings.insert(ceilings.end(), added.begin(), added.end());
}

/// A cache of unknown rate: what it holds need not come from further out, and has no roof that is known.
perfmodel::Machine machine_of(const std::string& device, const devices::Device& described,
                              const std::vector<record::Ceiling>& ceilings) {
  std::map<std::string, double> capacities;
  for (std::size_t i = 0; i + 1 < described.memory.size(); ++i) {
    capacities[described.memory[i].name] = described.memory[i].bytes;
  }
  perfmodel::Machine machine = perfmodel::Machine::from_ceilings(ceilings, device, 0, capacities);
  for (const auto& [name, bytes] : capacities) {
    if (bytes <= 0 || std::ranges::count(machine.levels, name, &perfmodel::MemoryLevel::name) > 0) continue;
    machine.levels.insert(
        machine.levels.begin(),
        {.name = name, .byte_per_s = std::numeric_limits<double>::infinity(), .capacity_bytes = bytes});
  }
  return machine;
}

/// Calls that have no roof, as they fit in a cache whose rate nobody knows.
struct LeftOut {
  double calls = 0, bytes = 0;
};

std::vector<perfmodel::OpRoof> roofs_of(const foreign::ForeignRun& run, const perfmodel::Machine& machine,
                                        LeftOut& left_out) {
  std::vector<perfmodel::OpRoof> roofs;
  for (const foreign::OpWork& work : run.work()) {
    perfmodel::Roof roof = perfmodel::roof_of(machine, {.dtype = work.dtype,
                                                        .needed_flop = work.needed_flop,
                                                        .bytes = work.bytes,
                                                        .far_bytes = work.far_bytes});
    if (roof.roof_s <= 0) {
      left_out.calls += work.calls;
      left_out.bytes += work.calls * work.bytes;
      continue;
    }
    for (double* seconds : {&roof.matmul_s, &roof.memory_s, &roof.roof_s}) *seconds *= work.calls;
    roofs.push_back({.op = work.op, .phase = work.phase, .roof = std::move(roof)});
  }
  return roofs;
}

void add_kernel_roofs(const foreign::ForeignRun& run, const perfmodel::Machine& machine,
                      std::vector<record::Prediction>& predictions) {
  for (const record::KernelWork& work : run.kernel_works()) {
    const perfmodel::Roof roof = perfmodel::roof_of(machine, {.dtype = work.dtype,
                                                              .needed_flop = work.needed_flop,
                                                              .bytes = work.bytes,
                                                              .far_bytes = work.far_bytes});
    if (roof.roof_s <= 0) continue;
    predictions.push_back({.subject = fmt::format("work:{}", work.work),
                           .quantity = "roof_s",
                           .value = roof.roof_s,
                           .unit = "s",
                           .bound = roof.bound});
  }
}

}  // namespace

std::vector<record::Ceiling> add_roofs(foreign::ForeignRun& run, bool is_here) {
  if (run.work().empty()) return {};
  const std::string device = run.device();
  const auto name = run.device_names.find(device);
  const std::string called = name == run.device_names.end() ? "" : name->second;
  const devices::Device described = devices::device_reported_as(called, devices::Kind::gpu);
  std::vector<record::Ceiling> ceilings;
  if (is_here && !called.empty()) ceilings = lab::kept_gpu_ceilings(device, called);
  add_catalog(device, described, ceilings);
  const perfmodel::Machine machine = machine_of(device, described, ceilings);
  if (machine.flop_per_s.empty() || machine.levels.empty()) {
    run.say(fmt::format("no roofs: the catalog does not have {} ({}); rooflm peaks --device {} measures it",
                        device, called.empty() ? "its name is not known" : called, device));
    return {};
  }
  LeftOut left_out;
  std::vector<record::Prediction> predictions =
      perfmodel::predict_roofs(machine, roofs_of(run, machine, left_out));
  add_kernel_roofs(run, machine, predictions);
  run.set_predictions(std::move(predictions));
  if (left_out.calls > 0) {
    run.add_fact(
        {.key = "roof_leaves_out",
         .value = left_out.bytes,
         .unit = "byte",
         .text = fmt::format("{:.0f} calls of operators, {}: they fit in the L2 cache, whose rate on "
                             "this device is not known (rooflm peaks --device {} measures it)",
                             left_out.calls, core::format_bytes(left_out.bytes), device)});
  }
  return ceilings;
}

}  // namespace rooflm::cli
