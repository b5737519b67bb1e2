// rooflm gemm: times matmuls: one big, looped, batched.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_record.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/options/micro_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/checked.h"
#include "core/error.h"
#include "core/names.h"
#include "core/stop_signals.h"
#include "lab/devices.h"
#include "lab/micro/micro_cells.h"
#include "model/config.h"
#include "report/model/run_data.h"
#include "report/tables/micro_rows.h"

namespace rooflm::cli {
namespace {

/// What is multiplied, and what it stands for.
struct Shape {
  std::string what;
  lab::GemmProblem problem;
};

std::vector<Shape> plain_shapes(const GemmOptions& options) {
  std::vector<Shape> shapes(1, {"square", {.trans_b = options.trans_b}});
  multiply(shapes, parse_integers("--size", options.size),
           [](Shape& s, std::int64_t size) { s.problem.m = s.problem.n = s.problem.k = size; });
  const auto replace = [&](const char* name, const std::string& typed,
                           std::int64_t lab::GemmProblem::*member) {
    multiply(shapes, parse_integers(name, typed), [member](Shape& s, std::int64_t value) {
      s.problem.*member = value;
      s.what = "given";
    });
  };
  replace("--m", options.m, &lab::GemmProblem::m);
  replace("--n", options.n, &lab::GemmProblem::n);
  replace("--k", options.k, &lab::GemmProblem::k);
  multiply(shapes, parse_integers("--count", options.count),
           [](Shape& s, std::int64_t count) { s.problem.count = count; });
  return shapes;
}

/// The scores of a model's attention, q k^T for each sequence and key/value head: of all positions in
/// training, of one new position against T earlier ones in decoding.
Shape scores_of(const model::ModelConfig& config, const std::string& phase, std::int64_t batch,
                std::int64_t seq) {
  const std::int64_t group = config.heads / config.kv_heads;
  return {fmt::format("q k^T of {}, {}", config.name, phase),
          {.m = phase == "training" ? core::Count(group) * seq : core::Count(group),
           .n = seq,
           .k = config.head_dim,
           .count = core::Count(batch) * config.kv_heads,
           .trans_b = true}};
}

std::vector<Shape> attention_shapes(const GemmOptions& options) {
  static const std::vector<std::string> kPhases = {"training", "decoding"};
  std::vector<Shape> shapes;
  for (const std::string& name : parse_names("--qk-of", options.qk_of)) {
    const model::ModelConfig config = model::preset(name);
    for (const std::string& phase : parse_names("--phase", options.phase)) {
      if (std::find(kPhases.begin(), kPhases.end(), phase) == kPhases.end()) {
        throw core::UsageError(core::unknown_name("phase", phase, kPhases));
      }
      for (const std::int64_t batch : parse_integers("--batch", options.batch)) {
        for (const std::int64_t seq : parse_integers("--seq", options.seq)) {
          shapes.push_back(scores_of(config, phase, batch, seq));
        }
      }
    }
  }
  return shapes;
}

}  // namespace

std::vector<lab::GemmCase> GemmOptions::cases() const {
  std::vector<lab::GemmCase> cases;
  for (Shape& shape : qk_of.empty() ? plain_shapes(*this) : attention_shapes(*this)) {
    cases.push_back({.device = {}, .dtype = {}, .shape = std::move(shape.what), .problem = shape.problem});
  }
  multiply(cases, parse_names("--device", device_or_default(device)),
           [](lab::GemmCase& c, const std::string& name) { c.device = lab::parse_device(name); });
  multiply(cases, parse_names("--dtype", dtype), [](lab::GemmCase& c, const std::string& name) {
    const lab::ComputeDtype compute =
        lab::parse_operand_dtype(name, c.device, backends::provider_of(c.device).describe(c.device));
    c.dtype = name;
    c.problem.dtype = compute.dtype;
    c.problem.fp32_products = compute.fp32_products;
  });
  multiply(cases, parse_names("--strategy", strategy), [](lab::GemmCase& c, const std::string& name) {
    c.problem.strategy = core::parse<lab::GemmStrategy>(name);
  });
  return cases;
}

namespace {

int run(const GemmOptions& options, const MicroOptions& micro) {
  const TableStyle style = micro.table.style();
  require_columns(report::columns_of(report::micro_gemm_columns()), style);
  const lab::MicroSettings settings = micro.settings();
  const std::vector<lab::GemmCase> cases = options.cases();
  const core::StopSignals signals;
  check_outputs({{"-o", micro.record}}, {}, micro.overwrite);
  if (micro.dry_run) {
    show_dry_run(cases, {{"-o", micro.record}}, style);
    return 0;
  }
  CommandRecord record(micro.record, micro.overwrite, "gemm");
  const auto measured = lab::MicroBench(settings).run(cases);
  record.writer().add(lab::cells_of(measured));
  record.finish();
  if (!record.is_printed()) {
    write_out(
        show_table(report::gemm_table(report::load(std::array{record.path()}).files.at(0).cells), style));
  }
  if (const int signal = core::StopSignals::received(); signal != 0) return core::stopped_code(signal);
  const bool all_oom =
      std::ranges::none_of(measured, [](const auto& each) { return each.result.has_value(); });
  return static_cast<int>(all_oom ? core::ExitCode::out_of_memory : core::ExitCode::done);
}

}  // namespace

Body declare_gemm(CommandLine& line) {
  auto options = std::make_shared<GemmOptions>();
  auto micro = std::make_shared<MicroOptions>("0.3");
  const std::string dtypes = operand_dtype_names(line);
  const auto add = [&](const char* name, std::string& value, const char* type, const char* text) {
    Option option = line.add_option(name, value, text).type_name(type);
    if (!value.empty()) option.show_default();
  };
  add("--device", options->device, "cpu|cuda[:N]", "Device to run on (default: the fastest one here)");
  add("--dtype", options->dtype, dtypes.c_str(), "Dtype of operands and results");
  add("--strategy", options->strategy, "big|looped|batched", "How the matmuls are submitted to the device");
  add("--size", options->size, "N", "Square matmuls: m = n = k");
  add("--m", options->m, "M", "Rows of the result, instead of --size");
  add("--n", options->n, "N", "Columns of the result, instead of --size");
  add("--k", options->k, "K", "Inner dimension, instead of --size");
  add("--count", options->count, "N", "Number of matmuls");
  line.add_flag("--trans-b", options->trans_b, "The right operand is stored transposed, [n, k]");
  add("--qk-of", options->qk_of, "MODEL",
      "Attention scores q k^T of a preset instead, one matmul per sequence and key head");
  add("--phase", options->phase, "training|decoding", "With --qk-of: T queries against T keys, or one query");
  add("--batch", options->batch, "B", "With --qk-of: sequences");
  add("--seq", options->seq, "T", "With --qk-of: sequence length");
  micro->add_to(line);
  line.footer(
      "Names and sizes accept lists and ranges (--size 256,1024); every combination is\n"
      "measured. Exit code 4 if every row runs out of memory.\n\n"
      "Example: rooflm gemm --device cuda --dtype bf16 --qk-of llama3-8b --seq 4096");
  return [options, micro] { return run(*options, *micro); };
}

}  // namespace rooflm::cli
