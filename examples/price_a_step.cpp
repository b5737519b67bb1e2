// Estimates a training step without running it: FLOPs and bytes per block, memory, and the least time on a
// device of the catalog by its datasheet.
//   price_a_step [MODEL [BATCH [SEQ [DEVICE]]]]
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <string>

#include "core/error.h"
#include "core/scope.h"
#include "core/units.h"
#include "devices/device.h"
#include "engines/engine.h"
#include "model/forward.h"
#include "perfmodel/device_fit.h"
#include "perfmodel/roofline.h"

int main(int argc, char** argv) {
  using namespace rooflm;
  try {
    const model::ModelConfig config = model::preset(argc > 1 ? argv[1] : "gpt2");
    const std::int64_t batch = argc > 2 ? std::atoll(argv[2]) : 4;
    const std::int64_t seq = argc > 3 ? std::atoll(argv[3]) : 64;
    const devices::Device device = devices::find_device(argc > 4 ? argv[4] : "h100-sxm");
    const perfmodel::Machine machine = perfmodel::datasheet_machine(device);

    // The model emits the forward pass; the recipe derives the rest of the step.
    const program::Program step =
        compile::training_step(model::forward(config, batch, seq), {.dtype = core::DType::bf16});

    // Layers fold together: "h.3/attention/qkv" counts as "h.*/attention/qkv".
    std::map<std::string, program::Cost> blocks;
    program::Cost total;
    double roof_s = 0;
    for (const program::Op& op : step.ops) {
      const std::string scope = core::Scope(op.scope).any_layer();
      const program::Cost cost = program::cost_of(step, op);
      blocks[scope] += cost;
      total += cost;
      roof_s += perfmodel::roof_of(machine, step, op).roof_s;
    }
    for (const auto& [scope, cost] : blocks) {
      fmt::print("{:<22} {:>9}FLOP {:>10} moved\n", scope,
                 core::format_si(static_cast<double>(cost.matmul_flop)),
                 core::format_bytes(static_cast<double>(cost.bytes_read + cost.bytes_written)));
    }
    const engines::MemoryNeed need = engines::memory_need(step, compile::EngineKind::fused);
    fmt::print("{} in bf16: {}FLOP in matmuls, at least {:.2f} ms on {}\n", config.name,
               core::format_si(static_cast<double>(total.matmul_flop)), roof_s * 1e3, device.name);
    fmt::print("{} of weights and optimizer state, {} arena\n",
               core::format_bytes(static_cast<double>(need.persistent_bytes)),
               core::format_bytes(static_cast<double>(need.transient_bytes)));
  } catch (const core::Error& error) {
    fmt::print(stderr, "price_a_step: {}\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
