// rooflm comm: times collectives between the ranks of a job.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_record.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/options/config_options.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/stop_signals.h"
#include "lab/devices.h"
#include "lab/micro/comm_bench.h"
#include "report/tables/micro_rows.h"

namespace rooflm::cli {
namespace {

/// As typed; every name and size may be a list.
struct CommOptions {
  std::string device, op, dtype = "fp32", size = "4KiB,64KiB,1MiB,16MiB", place = "out,in", seconds = "0.2",
                          collectives = "default";
  TableOptions table;
  std::string record;
  bool overwrite = false, dry_run = false;
};

bool parse_place(const std::string& name) {
  if (name == "in" || name == "out") return name == "in";
  throw core::UsageError(fmt::format("--place {}: in or out", name));
}

core::DType parse_dtype(const std::string& name, const std::string& device) {
  const auto compute = lab::parse_operand_dtype(name, device, backends::provider_of(device).describe(device));
  if (compute.fp32_products != program::Fp32Products::plain) {
    throw core::UsageError(fmt::format("--dtype {0}: {0} is stored as fp32, so choose fp32", name));
  }
  return compute.dtype;
}

std::int64_t whole_bytes(const std::string& size) {
  constexpr double kMost = 0x1p62;  // buffers and their sums fit 64 bits
  const double bytes = parse_bytes("--size", size);
  if (bytes > kMost) throw core::UsageError(fmt::format("--size {} is larger than any memory", size));
  return static_cast<std::int64_t>(bytes);
}

constexpr const char* kAllOps = "all_reduce,all_gather,reduce_scatter,sendrecv";

/// All combinations, except messages in place, which do not exist.
std::vector<lab::CommCase> cases_of(const CommOptions& options, const std::string& device, int ranks) {
  using Case = lab::CommCase;
  std::vector<Case> cases(1);
  multiply(cases, parse_names("--op", options.op.empty() ? kAllOps : options.op),
           [](Case& c, const std::string& name) { c.problem.op = core::parse<lab::CommOp>(name); });
  multiply(cases, parse_names("--dtype", options.dtype), [&](Case& c, const std::string& name) {
    c.dtype = name;
    c.problem.dtype = parse_dtype(name, device);
  });
  multiply(cases, parse_names("--size", options.size), [&](Case& c, const std::string& size) {
    c.problem.bytes = whole_bytes(size);
    if (c.problem.count(ranks) == 0) {
      throw core::UsageError(
          fmt::format("--size {} is less than one element of {} for each of {} ranks", size, c.dtype, ranks));
    }
  });
  multiply(cases, parse_names("--place", options.place),
           [](Case& c, const std::string& name) { c.problem.in_place = parse_place(name); });
  std::erase_if(
      cases, [](const Case& c) { return c.problem.in_place && c.problem.op == lab::CommOp::send_receive; });
  return cases;
}

/// What must be the same on all ranks.
std::map<std::string, std::string> values_of(const CommOptions& options, const std::string& device) {
  return {{"version", ROOFLM_VERSION},
          {"--op", options.op},
          {"--dtype", options.dtype},
          {"--size", options.size},
          {"--place", options.place},
          {"--seconds", options.seconds},
          {"--collectives", options.collectives},
          {"kind of device", device.substr(0, device.find(':'))}};
}

backends::CollectiveWay parse_way(const std::string& name) {
  const backends::CollectiveWish way = core::parse<backends::CollectiveWish>(name);
  if (!way)
    throw core::UsageError(fmt::format("--collectives {}: name a single way; auto is for steps", name));
  if (*way != backends::CollectiveWay::peer_memory) return *way;
  throw core::UsageError(
      fmt::format("--collectives {}: steps have no collectives to time then; `bench` times the steps", name));
}

void require_right(const std::vector<lab::MeasuredComm>& rows) {
  for (const lab::MeasuredComm& row : rows) {
    if (!row.result || row.result->wrong == 0) continue;
    throw core::CheckFailed(fmt::format("{} of {} B on {}: {} elements are wrong",
                                        name_of(row.what.problem.op), row.what.problem.size(row.ranks),
                                        row.carrier, row.result->wrong));
  }
}

int run(const CommOptions& options, const lab::Ranks& ranks) {
  const TableStyle style = options.table.style();
  require_columns(report::columns_of(report::micro_comm_columns()), style);
  const core::StopSignals signals;
  if (ranks == nullptr) throw core::UsageError("comm needs several ranks: rooflm launch -n 2 -- comm");
  const std::string device = lab::parse_device(device_or_default(options.device));
  const backends::CollectiveWay way = parse_way(options.collectives);
  const std::vector<lab::CommCase> cases = cases_of(options, device, ranks->size());
  const measure::SamplingOptions sampling{.seconds = parse_number("--seconds", options.seconds)};
  lab::agree(ranks, values_of(options, device));
  const int sharers = lab::agree_on_devices(ranks, device);
  if (ranks->is_first()) check_outputs({{"-o", options.record}}, {}, options.overwrite);
  if (options.dry_run) {
    if (ranks->is_first())
      show_dry_run(fmt::format("measure {} rows", cases.size()), {{"-o", options.record}});
    return 0;
  }
  std::optional<CommandRecord> record;
  if (ranks->is_first()) record.emplace(options.record, options.overwrite, "comm");
  lab::CommBench bench(ranks, device, way, sampling, sharers);
  const auto measured = bench.run(cases);
  if (record) {
    const std::vector<record::Cell> cells = lab::cells_of(measured);
    record->writer().add(cells);
    record->finish();
    if (!record->is_printed()) write_out(show_table(report::comm_table(cells), style));
  }
  require_right(measured);
  if (bench.signal() != 0) return core::stopped_code(bench.signal());
  const bool all_oom =
      std::ranges::none_of(measured, [](const auto& each) { return each.result.has_value(); });
  return static_cast<int>(all_oom ? core::ExitCode::out_of_memory : core::ExitCode::done);
}

}  // namespace

Body declare_comm(CommandLine& line) {
  auto options = std::make_shared<CommOptions>();
  const auto add = [&](const char* name, std::string& value, const char* type, const char* text) {
    Option option = line.add_option(name, value, text).type_name(type);
    if (!value.empty()) option.show_default();
  };
  add("--device", options->device, "cpu|cuda[:N]",
      "Device whose memory holds the tensors (default: the fastest one here)");
  add("--op", options->op, "NAME",
      "all_reduce|all_gather|reduce_scatter|sendrecv, a ring of messages (default: all)");
  add("--dtype", options->dtype, "fp32|bf16|fp16", "Dtype of the elements");
  add("--size", options->size, "SIZE", "Bytes of the whole tensor over all ranks: 8, 64KiB, 1GB");
  add("--place", options->place, "out|in", "Out of place or in place");
  add("--collectives", options->collectives, "default|few-blocks|copy-engine",
      "How GPUs run collectives: NCCL's default, kernels with few blocks, or copies without kernels");
  line.add_option("--seconds", options->seconds, "Seconds per row; at least five samples are taken")
      .type_name("S")
      .show_default()
      .group("Measuring");
  options->table.add_to(line, "Output format; JSON and CSV have all values at full precision", "Output");
  line.add_option("-o,--output", options->record,
                  "Write a run record, for report and verify; - is standard output")
      .type_name("FILE.rooflm")
      .group("Output");
  line.add_flag("--overwrite", options->overwrite, "Overwrite an existing record").group("Output");
  add_dry_run(line, options->dry_run);
  line.footer(
      "Names and sizes accept lists; every combination is measured. Columns are those\n"
      "of nccl-tests: algbw is size / time; busbw is algbw times 2 (n-1)/n\n"
      "(all_reduce), (n-1)/n (all_gather, reduce_scatter) or 1, for n ranks; `wrong`\n"
      "counts wrong elements. Exit code 1 if any is wrong. A time is that of the last\n"
      "rank to finish: the median of at least 6 samples, with a 95 % confidence\n"
      "interval.\n\n"
      "Example: rooflm launch -n 2 -- comm --op all_reduce --size 64KiB,1MiB,16MiB\n"
      "         mpirun -n 4 rooflm comm --device cpu --dtype bf16 -o comm.rooflm");
  return [options] { return lab::run_in_job([&](const lab::Ranks& ranks) { return run(*options, ranks); }); };
}

}  // namespace rooflm::cli
