// Arguments of events of Kineto's traces.
#include "report/export/kineto_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "report/export/export.h"
#include "report/model/launch_shape.h"

namespace rooflm::report {
namespace {

struct CollectiveName {
  std::string_view nccl, torch;
  bool is_gathering = false, is_scattering = false;  ///< its output, or its input, is of all ranks
};
/// As torch.distributed calls them; NCCL counts the elements of the smaller side.
constexpr CollectiveName kKinetoCollectives[] = {{"AllGather", "_allgather_base", true, false},
                                                 {"ReduceScatter", "_reduce_scatter_base", false, true},
                                                 {"AllReduce", "allreduce"},
                                                 {"Broadcast", "broadcast"},
                                                 {"Reduce", "reduce"},
                                                 {"AlltoAll", "all_to_all", true, true},
                                                 {"Gather", "gather", true, false},
                                                 {"Scatter", "scatter", false, true},
                                                 {"Send", "send"},
                                                 {"Recv", "recv"}};

struct Dtype {
  std::string_view nccl, torch;
};
/// NCCL copies bytes, and calls them Int8 whatever the program's type is.
constexpr Dtype kDtypes[] = {{"Int8", "Byte"},
                             {"Uint8", "Byte"},
                             {"Int32", "Int"},
                             {"Int64", "Long"},
                             {"Float16", "Half"},
                             {"Bfloat16", "BFloat16"},
                             {"Float32", "Float"},
                             {"Float64", "Double"},
                             {"Float8e4m3", "Float8_e4m3fn"},
                             {"Float8e5m2", "Float8_e5m2"}};

std::string collective_args(const TraceEvent& event, RankPlace place) {
  const auto extra = nlohmann::json::parse(event.extra, nullptr, false);
  if (!extra.is_object()) return {};
  const auto number = [&](const char* key) {
    const auto found = extra.find(key);
    return found != extra.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
  };
  const auto text = [&](const char* key) {
    const auto found = extra.find(key);
    return found != extra.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto* const name = std::ranges::find(kKinetoCollectives, event.name, &CollectiveName::nccl);
  const std::string nccl_dtype = text("dtype");
  const auto* const dtype = std::ranges::find(kDtypes, nccl_dtype, &Dtype::nccl);
  const std::int64_t ranks = number("ranks");
  const std::int64_t count = number("count");
  std::string args = fmt::format(
      R"(, "Collective name": {})",
      json_quoted(name != std::end(kKinetoCollectives) ? name->torch : std::string_view(event.name)));
  if (count >= 0 && ranks > 0) {
    const bool is_known = name != std::end(kKinetoCollectives);
    args += fmt::format(R"(, "In msg nelems": {}, "Out msg nelems": {}, "Group size": {})",
                        is_known && name->is_scattering ? count * ranks : count,
                        is_known && name->is_gathering ? count * ranks : count, ranks);
  }
  if (!nccl_dtype.empty())
    args +=
        fmt::format(R"(, "dtype": {})",
                    json_quoted(dtype != std::end(kDtypes) ? dtype->torch : std::string_view(nccl_dtype)));
  args += R"(, "In split size": "[]", "Out split size": "[]")";
  if (const std::string group = text("communicator"); !group.empty())
    args += fmt::format(R"(, "Process Group Name": {})", json_quoted(group));
  if (ranks > 0 && ranks == place.ranks) {  // of other groups nobody says which ranks they have
    args += R"(, "Process Group Ranks": "[)";
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      args += fmt::format("{}{}", rank == 0 ? "" : ", ", rank);
    args += R"(]")";
  }
  if (number("rank") >= 0) args += fmt::format(R"(, "Rank": {})", number("rank"));
  if (number("sequence") >= 0) args += fmt::format(R"(, "Seq": {})", number("sequence"));
  return args;
}

}  // namespace

std::string op_args(const TimedOp& op) {
  return fmt::format(R"("op": {}, "phase": {}, "scope": {}, "shapes": {}, "class": {})", op.op.op,
                     json_quoted(op.op.phase), json_quoted(op.op.scope), json_quoted(op.op.shapes),
                     json_quoted(op.op.op_class));
}

std::string launch_args(const TraceEvent& kernel, std::int64_t multiprocessors) {
  const LaunchShape shape = parse_launch(kernel.extra);
  std::string args;
  if (shape.blocks() > 0) {
    args += fmt::format(R"(, "grid": [{}], "block": [{}])", fmt::join(shape.grid, ", "),
                        fmt::join(shape.block, ", "));
    if (multiprocessors > 0) {
      const double blocks = static_cast<double>(shape.blocks()) / static_cast<double>(multiprocessors);
      args += fmt::format(R"(, "blocks per SM": {:.6g}, "warps per SM": {:.6g})", blocks,
                          blocks * static_cast<double>(shape.warps()));
    }
  }
  if (shape.registers) args += fmt::format(R"(, "registers per thread": {})", *shape.registers);
  if (shape.shared_static || shape.shared_dynamic) {
    args += fmt::format(R"(, "shared memory": {})",
                        shape.shared_static.value_or(0) + shape.shared_dynamic.value_or(0));
  }
  if (shape.occupancy)
    args += fmt::format(R"(, "est. achieved occupancy %": {:.0f})", 100 * *shape.occupancy);
  return args;
}

CollectiveArgs::CollectiveArgs(const Trace& trace, RankPlace place) {
  for (const TraceEvent& event : trace.events()) {
    if (event.kind == "communication" && event.correlation)
      of_kernel_.try_emplace({*event.correlation, event.start_ns}, collective_args(event, place));
  }
}

std::string CollectiveArgs::of(const TraceEvent& kernel) const {
  const auto found =
      kernel.correlation ? of_kernel_.find({*kernel.correlation, kernel.start_ns}) : of_kernel_.end();
  return found == of_kernel_.end() ? std::string() : found->second;
}

}  // namespace rooflm::report
