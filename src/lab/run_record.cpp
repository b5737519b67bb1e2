// The parts of a run record that all commands that measure steps write.
#include "lab/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/dtype.h"
#include "lab/devices.h"
#include "lab/job.h"
#include "lab/machine_info.h"
#include "lab/notes.h"
#include "measure/machine_load.h"
#include "model/flop_conventions.h"
#include "model/forward.h"
#include "perfmodel/program_totals.h"
#include "perfmodel/roofline.h"

namespace rooflm::lab {
namespace {

/// The command line as it was typed, from the operating system; `otherwise` where it does not say.
std::string command_line(const std::string& otherwise) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) return "rooflm " + otherwise;
  text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return "rooflm" + text.substr(std::min(text.find(' '), text.size()));
}

}  // namespace

std::unique_ptr<record::Writer> open_record(const std::filesystem::path& path, const std::string& command,
                                            bool overwrite, bool has_machine) {
  auto writer = std::make_unique<record::Writer>(path, command_line(command), overwrite);
  if (!has_machine) return writer;
  for (const auto& [key, value] : machine_lines(false)) {
    writer->add(record::Environment{.key = key, .value = value, .unit = {}});
  }
  return writer;
}

record::Run run_row(const Point& point) { return {.label = describe(point), .config = config_of(point)}; }

std::vector<record::Fact> step_facts(const Point& point, const program::Program& program) {
  const engines::MemoryNeed need = engines::memory_need(program, point.step.engine);
  const auto tokens = static_cast<double>(point.tokens());
  const model::Trained trained = model::trained_beside(point.step.lora);
  const double model_flop =
      static_cast<double>(model::model_flop_per_token(point.config, point.seq, trained)) * tokens;
  std::vector<record::Fact> facts;
  const auto add = [&](const char* key, double value, const char* unit, std::string text = "") {
    facts.push_back({.key = key, .value = value, .unit = unit, .text = std::move(text)});
  };
  add("tokens", tokens, "tokens");
  // The formula is of a training step.
  if (point.phase == RunPhase::step)
    add("model_flop", model_flop, "flop",
        fmt::format("{} tokens (PaLM, appendix B)", model::model_flop_formula(trained)));
  add("matmul_flop", static_cast<double>(perfmodel::step_totals(program).cost.matmul_flop), "flop");
  add("needed_matmul_flop", perfmodel::needed_matmul_flop(program), "flop", "without what a mask hides");
  add("plan_bytes", static_cast<double>(need.transient_bytes), "B");
  add("state_bytes", static_cast<double>(need.persistent_bytes), "B");
  add("needed_bytes", static_cast<double>(need.total()), "B");
  const devices::Device device = backends::provider_of(point.device).describe(point.device);
  const std::string dtype(compile::dtype_name(point.step));
  if (const auto peak = device.peak(dtype)) {
    add("datasheet_flop_per_s", *peak, "flop/s",
        fmt::format("dense {} peak of the {}, from its datasheet", dtype, device.name));
  }
  const auto is_fp8 = [](const program::Tensor& tensor) { return core::is_fp8(tensor.dtype); };
  if (dtype == "fp8" && std::ranges::none_of(program.tensors, is_fp8)) {
    add("fp8_matmuls", 0, "",
        fmt::format("no matmul runs in fp8, all are bf16: some extent of each ({} tokens of a micro-batch, "
                    "widths of the model) is not a multiple of 16",
                    point.batch * point.rows()));
  }
  if (point.device_ranks > 1)
    add("device_ranks", point.device_ranks, "", sharing_sentence(point.device_ranks, point.device));
  return facts;
}

std::optional<record::Fact> gemm_fact(const backends::GemmChoices& choices) {
  if (choices.first + choices.kept + choices.searched == 0) return std::nullopt;
  std::string text = fmt::format(
      "GEMM algorithms: {} autotuned now, {} from the autotune cache, {} the library's first choice",
      choices.searched, choices.kept, choices.first);
  if (!choices.damaged.empty()) {
    text += fmt::format("; the cache {} was damaged", choices.damaged);
    note("{} is damaged: GEMM algorithms are autotuned again", choices.damaged);
  }
  return record::Fact{
      .key = "gemm_search_s", .value = choices.search_s, .unit = "s", .text = std::move(text)};
}

void add_samples(std::vector<record::Sample>& rows, std::int64_t step, const engines::StepTimes& times,
                 const std::string& kind) {
  const auto add = [&](const char* phase, double seconds) {
    rows.push_back({.step = step, .phase = phase, .seconds = seconds, .kind = kind});
  };
  add("forward", times.forward_s);
  const bool is_forward = times.backward_s == 0 && times.optimizer_s == 0;
  if (!is_forward) {
    add("backward", times.backward_s);
    add("optimizer", times.optimizer_s);
  }
  add("step", times.step_s);
  if (times.wait_s > 0) add("wait", times.wait_s);
  add("submit", times.submit_s);
}

record::Fact others_fact(double others_share) {
  const bool is_busy = others_share > measure::kBusyShare;
  return {.key = "others_share",
          .value = others_share,
          .unit = "share",
          .text = is_busy ? "busy machine: " + measure::load_sentence(others_share) : ""};
}

}  // namespace rooflm::lab
