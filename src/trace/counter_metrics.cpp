// Which hardware counters of a GPU answer which question.
#include "trace/counter_metrics.h"

#include <array>

#include "core/units.h"

namespace rooflm::trace {
namespace {

constexpr double kShare = 0.01;     // value of one percent
constexpr double kMultiplyAdd = 2;  // FLOP per multiply-add
constexpr double kPair = 2;         // numbers per register of 16-bit instructions

CounterSet memory() {
  return {.name = "memory",
          .metrics = {
              {"dram__bytes_read.sum", "dram_read_bytes", "B"},
              {"dram__bytes_write.sum", "dram_written_bytes", "B"},
              {"lts__t_bytes.sum", "l2_bytes", "B"},
              {"lts__t_sectors.sum", "l2_sectors", "sectors"},
              {"lts__t_sectors_lookup_hit.sum", "l2_hit_sectors", "sectors"},
              {"l1tex__t_bytes.sum", "l1_bytes", "B"},
              {"l1tex__t_sectors.sum", "l1_sectors", "sectors"},
              {"l1tex__t_sectors_lookup_hit.sum", "l1_hit_sectors", "sectors"},
              {"sm__ops_path_tensor_src_bf16_dst_fp32.sum", "tensor_bf16_flop", "flop"},
              {"sm__inst_executed.sum", "instructions", "instructions"},
              {"sm__cycles_elapsed.max", "cycles", "cycles"},
              {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "tensor_active", "share",
               kShare},
              {"sm__cycles_active.avg.pct_of_peak_sustained_elapsed", "sm_active", "share", kShare},
              {"sm__warps_active.avg.pct_of_peak_sustained_active", "warps_active", "share", kShare},
              {"gpu__time_duration.sum", "counted_s", "s", core::kNano},
          }};
}

CounterSet tensor() {
  return {.name = "tensor",
          .metrics = {
              {"sm__ops_path_tensor_src_fp16.sum", "tensor_fp16_flop", "flop"},
              {"sm__ops_path_tensor_src_tf32_dst_fp32.sum", "tensor_tf32_flop", "flop"},
              {"sm__ops_path_tensor_src_fp8.sum", "tensor_fp8_flop", "flop"},
              {"sm__ops_path_tensor_src_fp64.sum", "tensor_fp64_flop", "flop"},
          }};
}

/// Metrics with "sass" in their names are counted by instrumenting the kernels.
CounterSet cores() {
  CounterSet set{.name = "cores", .metrics = {}};
  const auto add_flop = [&](const std::string& prefix, const std::string& name, double numbers) {
    const std::string metric = "sm__sass_thread_inst_executed_op_" + prefix;
    set.metrics.push_back({metric + "fma_pred_on.sum", name, "flop", numbers * kMultiplyAdd});
    set.metrics.push_back({metric + "add_pred_on.sum", name, "flop", numbers});
    set.metrics.push_back({metric + "mul_pred_on.sum", name, "flop", numbers});
  };
  add_flop("f", "fp32_flop", 1);
  add_flop("h", "fp16_flop", kPair);
  add_flop("d", "fp64_flop", 1);
  const auto add = [&](const char* metric, const char* name, const char* unit) {
    set.metrics.push_back({metric, name, unit});
  };
  add("sm__sass_data_bytes_mem_global_op_ld.sum", "load_bytes", "B");
  add("sm__sass_data_bytes_mem_global_op_ldgsts.sum", "load_bytes", "B");
  add("sm__sass_data_bytes_mem_global_op_st.sum", "store_bytes", "B");
  add("sm__sass_data_bytes_mem_local.sum", "local_bytes", "B");
  add("sm__sass_data_bytes_mem_shared.sum", "shared_bytes", "B");
  add("sm__sass_inst_executed_op_global_ld.sum", "load_instructions", "instructions");
  add("sm__sass_inst_executed_op_ldgsts.sum", "load_instructions", "instructions");
  add("sm__sass_inst_executed_op_global_st.sum", "store_instructions", "instructions");
  add("sm__sass_inst_executed_op_tma.sum", "tma_instructions", "instructions");
  return set;
}

CounterSet stalls() {
  CounterSet set{.name = "stalls", .metrics = {}};
  for (const char* reason :
       {"long_scoreboard", "math_pipe_throttle", "barrier", "wait", "gmma", "short_scoreboard"}) {
    set.metrics.push_back({std::string("smsp__warps_issue_stalled_") + reason + ".sum",
                           std::string("stall_") + reason, "warp cycles"});
  }
  set.metrics.push_back({"smsp__warps_active.sum", "warp_cycles", "warp cycles"});
  return set;
}

}  // namespace

std::span<const CounterSet> counter_sets() {
  static const std::array kSets = {memory(), tensor(), cores(), stalls()};
  return kSets;
}

}  // namespace rooflm::trace
