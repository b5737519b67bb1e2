// rooflm gemm: times matrix products, cut up in different ways.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/names.h"
#include "core/units.h"
#include "measure/micro_bench.h"
#include "model/config.h"

namespace rooflm::cli {
namespace {

struct Options {
  std::string device = "cpu", dtype = "fp32", strategy = "big,looped,batched";
  std::string size = "1024", m, n, k, count = "1,4,16";
  std::string qk_of, phase = "training,decoding", batch = "1", seq = "1024";
  std::string seconds = "0.3", memory_limit, format = "table";
  bool trans_b = false;
  MachineOptions machine;
};

/// What is multiplied, and what it stands for.
struct Shape {
  std::string what;
  measure::GemmProblem problem;
};

std::vector<Shape> plain_shapes(const Options& options) {
  std::vector<Shape> shapes(1, {"square", {.trans_b = options.trans_b}});
  multiply(shapes, parse_integers("--size", options.size),
           [](Shape& s, std::int64_t size) { s.problem.m = s.problem.n = s.problem.k = size; });
  const auto replace = [&](const char* name, const std::string& typed,
                           std::int64_t measure::GemmProblem::*member) {
    multiply(shapes, parse_integers(name, typed), [member](Shape& s, std::int64_t value) {
      s.problem.*member = value;
      s.what = "given";
    });
  };
  replace("--m", options.m, &measure::GemmProblem::m);
  replace("--n", options.n, &measure::GemmProblem::n);
  replace("--k", options.k, &measure::GemmProblem::k);
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
          {.m = phase == "training" ? group * seq : group,
           .n = seq,
           .k = config.head_dim,
           .count = batch * config.kv_heads,
           .trans_b = true}};
}

std::vector<Shape> attention_shapes(const Options& options) {
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

/// One row to measure.
struct Case {
  Shape shape;
  std::string device;
  std::string dtype;
};

std::vector<Case> cases_of(const Options& options) {
  std::vector<Case> cases;
  for (Shape& shape : options.qk_of.empty() ? plain_shapes(options) : attention_shapes(options)) {
    cases.push_back({std::move(shape), {}, {}});
  }
  multiply(cases, parse_names("--device", options.device),
           [](Case& c, const std::string& name) { c.device = parse_device(name); });
  multiply(cases, parse_names("--dtype", options.dtype), [](Case& c, const std::string& name) {
    const ComputeDtype dtype = parse_compute_dtype(name, c.device);
    c.dtype = name;
    c.shape.problem.dtype = dtype.dtype;
    c.shape.problem.tf32 = dtype.tf32;
  });
  multiply(cases, parse_names("--strategy", options.strategy), [](Case& c, const std::string& name) {
    c.shape.problem.strategy = measure::parse_gemm_strategy(name);
  });
  return cases;
}

Row identity(const Case& c) {
  const measure::GemmProblem& p = c.shape.problem;
  Row row;
  row.set("device", c.device);
  row.set("shape", c.shape.what);
  row.set("dtype", c.dtype);
  row.set("count", p.count);
  row.set("m", p.m);
  row.set("n", p.n);
  row.set("k", p.k);
  row.set("trans_b", p.trans_b);
  row.set("strategy", std::string(measure::name_of(p.strategy)));
  row.set("flop", p.flop());
  row.set("needed_bytes", static_cast<std::int64_t>(p.bytes()));
  return row;
}

void set_result(Row& row, const measure::GemmProblem& problem, const measure::GemmResult& result) {
  constexpr double kMs = 1e3;
  row.set("status", std::string("success"));
  const std::array<std::pair<std::string, const core::Summary*>, 2> times = {
      {{"wall", &result.wall}, {"device", &result.device}}};
  for (const auto& [name, seconds] : times) {
    row.set(name + "_ms_median", seconds->median * kMs);
    row.set(name + "_ms_mean", seconds->mean * kMs);
    row.set(name + "_ms_std", seconds->std * kMs);
    row.set(name + "_flop_per_s", problem.flop() / seconds->median);
  }
  row.set("device_bytes_per_s", problem.bytes() / result.device.median);
  row.set("samples", static_cast<std::int64_t>(result.wall.count));
}

Row measure_case(const Case& c, backends::Backend& backend, const Options& options, double limit_bytes) {
  constexpr int kLeastSamples = 3;
  const measure::SamplingOptions sampling{.seconds = parse_number("--seconds", options.seconds),
                                          .min_samples = kLeastSamples};
  Row row = identity(c);
  const double free_bytes = backend.free_bytes();
  row.set("free_bytes", static_cast<std::int64_t>(free_bytes));
  const double needed = c.shape.problem.bytes();
  try {
    if (limit_bytes > 0 && needed > limit_bytes) throw core::OutOfMemory("limit", needed);
    set_result(row, c.shape.problem, measure::run_gemm(backend, c.shape.problem, sampling));
  } catch (const core::OutOfMemory&) {
    row.set("status", std::string("oom"));
    note("  out of memory: needs {}, free {}", core::format_bytes(needed), core::format_bytes(free_bytes));
  }
  return row;
}

Table make_table(std::vector<Row> rows) {
  return {
      .columns = {{"device", "device"},
                  {"shape", "shape"},
                  {"dtype", "dtype"},
                  {"count", "count"},
                  {"m", "m"},
                  {"n", "n"},
                  {"k", "k"},
                  {"strategy", "strategy"},
                  {"status", "status"},
                  {"wall_ms_median", "wall_ms"},
                  {"device_ms_median", "device_ms"},
                  {"wall_flop_per_s", "flop/s", Show::si},
                  {"device_flop_per_s", "device_flop/s", Show::si},
                  {"device_bytes_per_s", "device_byte/s", Show::si},
                  {"needed_bytes", "memory", Show::bytes}},
      .rows = std::move(rows),
      .notes = {"", "Times: medians; wall: from the submission of all products until the device is done.",
                "big: one product of count m rows; looped: a call per product; batched: one call, operands "
                "at constant strides.",
                "byte/s: operands and result once. The first run is discarded."}};
}

int run(const Options& options) {
  const Format format = parse_format(options.format);
  const double limit = options.memory_limit.empty() ? 0 : parse_bytes("--memory-limit", options.memory_limit);
  parse_number("--seconds", options.seconds);
  const std::vector<Case> cases = cases_of(options);
  std::map<std::string, std::unique_ptr<backends::Backend>> devices;
  for (const Case& c : cases) {
    if (c.device == "null") throw core::UsageError("--device null runs nothing: there is nothing to measure");
    auto& backend = devices[c.device];
    if (backend != nullptr) continue;
    backend =
        make_backend(c.device, compile::EngineKind::fused, options.machine.thread_count(), Tuning::timed);
  }
  std::vector<Row> rows;
  for (const Case& c : cases) {
    const measure::GemmProblem& p = c.shape.problem;
    note("[{}/{}] {} x [{}, {}] by [{}, {}] {} {} on {}", rows.size() + 1, cases.size(), p.count, p.m, p.k,
         p.k, p.n, c.dtype, measure::name_of(p.strategy), c.device);
    rows.push_back(measure_case(c, *devices.at(c.device), options, limit));
  }
  const bool all_oom =
      std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.text("status") == "oom"; });
  write_out(format_table(make_table(std::move(rows)), format));
  return static_cast<int>(all_oom ? core::ExitCode::out_of_memory : core::ExitCode::done);
}

}  // namespace

Body declare_gemm(CLI::App& app) {
  auto options = std::make_shared<Options>();
  const auto add = [&](const char* name, std::string& value, const char* type, const char* text) {
    app.add_option(name, value, text)->type_name(type)->capture_default_str();
  };
  add("--device", options->device, "cpu|cuda[:N]", "What runs it");
  add("--dtype", options->dtype, "fp32|tf32|bf16|fp16", "Of operands and results");
  add("--strategy", options->strategy, "big|looped|batched", "How the products are given to the device");
  add("--size", options->size, "N", "Square products: m = n = k");
  add("--m", options->m, "M", "Rows of the result, instead of --size");
  add("--n", options->n, "N", "Columns of the result, instead of --size");
  add("--k", options->k, "K", "Length of the sums, instead of --size");
  add("--count", options->count, "N", "Products");
  app.add_flag("--trans-b", options->trans_b, "The right operand is stored transposed, [n, k]");
  add("--qk-of", options->qk_of, "MODEL",
      "Instead: the scores q k^T of a preset, one per sequence and key head");
  add("--phase", options->phase, "training|decoding", "With --qk-of: T positions against T, or one");
  add("--batch", options->batch, "B", "With --qk-of: sequences");
  add("--seq", options->seq, "T", "With --qk-of: positions");
  add("--seconds", options->seconds, "S", "Time spent on each row, three runs at least");
  add("--memory-limit", options->memory_limit, "SIZE", "What needs more is a row with status oom");
  add("--format", options->format, kFormats, "JSON and CSV carry every value in full");
  options->machine.add_to(app);
  app.footer(
      "Names and sizes take lists and ranges (--size 256,1024), which multiply into a sweep. Exit code 4 "
      "when\n"
      "every row is out of memory.\n\n"
      "Example: rooflm gemm --device cuda --dtype bf16 --qk-of llama3-8b --batch 8 --seq 4096");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
