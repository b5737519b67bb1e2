// Databases of `nsys export --type sqlite`. Tables and columns differ from version to version: what is
// missing is left out, and only what is there is asked for.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <map>
#include <set>
#include <unordered_map>

#include "core/error.h"
#include "core/printable.h"
#include "foreign/import.h"
#include "record/database.h"

namespace rooflm::foreign {
namespace {

constexpr std::int64_t kLow24 = 0xFFFFFF;
constexpr int kMark = 34;
constexpr int kPushPop = 59;
constexpr int kStartEnd = 60;
constexpr int kDomain = 75;

/// "cudaLaunchKernel_v7000" is "cudaLaunchKernel".
std::string_view without_version(std::string_view name) {
  const auto version = name.rfind("_v");
  if (version == std::string_view::npos || version + 2 == name.size()) return name;
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  return std::ranges::all_of(name.substr(version + 2), is_digit) ? name.substr(0, version) : name;
}

class NsysReader {
 public:
  NsysReader(const std::filesystem::path& path, ForeignRun& run)
      : path_(path), run_(run), database_(path, record::Database::Mode::read, std::chrono::seconds(2)) {
    database_.distrust();
  }

  void read() {
    if (database_.query_integer("PRAGMA application_id") == 0x72666C6D) {
      throw core::InputError(fmt::format("{}: it is a run record already", path_.string()));
    }
    constexpr const char* kTables[] = {"CUPTI_ACTIVITY_KIND_KERNEL",      "CUPTI_ACTIVITY_KIND_RUNTIME",
                                       "CUPTI_ACTIVITY_KIND_MEMCPY",      "CUPTI_ACTIVITY_KIND_MEMSET",
                                       "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "NVTX_EVENTS",
                                       "CUDA_GPU_MEMORY_USAGE_EVENTS"};
    const bool has_rows =
        std::ranges::any_of(kTables, [&](const char* table) { return !columns(table).empty(); });
    if (!has_rows) {
      throw core::InputError(
          fmt::format("{}: it has none of the tables of nsys that hold events (CUPTI_ACTIVITY_KIND_KERNEL, "
                      "CUPTI_ACTIVITY_KIND_RUNTIME, NVTX_EVENTS, ...): was it traced with --trace=cuda,nvtx?",
                      path_.string()));
    }
    read_texts();
    read_devices();
    read_calls();
    read_kernels();
    read_copies();
    read_graphs();
    read_synchronization();
    read_memory();
    read_ranges();
  }

 private:
  const std::set<std::string>& columns(const std::string& table) {
    const auto [entry, is_new] = columns_.try_emplace(table);
    if (!is_new) return entry->second;
    record::Statement names = database_.prepare("SELECT name FROM pragma_table_info(?)");
    names.bind(std::string_view(table));
    while (names.step()) entry->second.insert(names.text(0));
    return entry->second;
  }

  /// The rows of `table`, as far as it has these columns: others are NULL.
  template <class Take>
  void rows(const std::string& table, std::initializer_list<const char*> wanted, const Take& take) {
    const std::set<std::string>& known = columns(table);
    if (known.empty()) return;
    std::string list;
    for (const char* column : wanted) {
      list += fmt::format("{}{}", list.empty() ? "" : ", ",
                          known.contains(column) ? fmt::format("\"{}\"", column) : "NULL");
    }
    record::Statement statement = database_.prepare(fmt::format("SELECT {} FROM \"{}\"", list, table));
    while (statement.step()) take(statement);
  }

  static std::optional<std::int64_t> number(const record::Statement& row, int column) {
    return row.is_null(column) ? std::nullopt : std::optional(row.integer(column));
  }

  void read_texts() {
    rows("StringIds", {"id", "value"},
         [&](const record::Statement& row) { texts_[row.integer(0)] = row.text(1); });
    if (texts_.empty()) run_.say("the table StringIds is missing or empty: names are numbers");
  }

  std::string text(const std::optional<std::int64_t>& id, std::string_view what) {
    const auto found = id ? texts_.find(*id) : texts_.end();
    if (found != texts_.end()) return found->second;
    if (!texts_.empty()) run_.count("names are not in StringIds: they are numbers");
    return id ? fmt::format("{} {}", what, *id) : std::string(what);
  }

  void read_devices() {
    std::map<std::int64_t, std::int64_t> multiprocessors;
    rows("TARGET_INFO_GPU", {"id", "name", "smCount"}, [&](const record::Statement& row) {
      const std::int64_t device = std::clamp<std::int64_t>(row.integer(0), 0, 255);
      run_.add_environment(fmt::format("device cuda:{}", device), core::printable(row.text(1)));
      multiprocessors[device] = row.integer(2);
    });
    run_.add_multiprocessors(multiprocessors);
  }

  /// Correlations count in each process anew.
  std::optional<std::int64_t> correlation(const std::optional<std::int64_t>& id,
                                          const std::optional<std::int64_t>& global) {
    if (!id || *id == 0) return std::nullopt;
    constexpr std::int64_t kMostId = std::int64_t{1} << 40U;
    const std::int64_t process = global.value_or(0) >> 24U & kLow24;
    const auto place =
        processes_.try_emplace(process, static_cast<std::int64_t>(processes_.size())).first->second;
    constexpr std::int64_t kMostProcesses = 1 << 20;
    return *id > 0 && *id < kMostId && place < kMostProcesses ? place * kMostId + *id : *id;
  }

  std::int64_t thread_lane(std::int64_t global) {
    const std::int64_t process = global >> 24U & kLow24;
    const std::int64_t thread = global & kLow24;
    return run_.lane(fmt::format("host {}", global & 0xFFFFFFFFFFFF),
                     {.kind = "host",
                      .device = "cpu",
                      .thread = thread,
                      .name = thread == process ? fmt::format("thread {}, main", thread)
                                                : fmt::format("thread {}", thread)});
  }

  std::int64_t stream_lane(std::int64_t device, std::int64_t stream) {
    device = std::clamp<std::int64_t>(device, 0, 255);
    return run_.lane(fmt::format("stream {} {}", device, stream), {.kind = "device",
                                                                   .device = fmt::format("cuda:{}", device),
                                                                   .stream = stream,
                                                                   .name = fmt::format("stream {}", stream)});
  }

  void read_calls() {
    rows("CUPTI_ACTIVITY_KIND_RUNTIME", {"start", "end", "globalTid", "correlationId", "nameId"},
         [&](const record::Statement& row) {
           const auto global = number(row, 2);
           const auto id = correlation(number(row, 3), global);
           const std::int64_t lane = thread_lane(global.value_or(0));
           if (id) thread_of_call_.emplace(*id, lane);
           add({.name = run_.name("api", without_version(text(number(row, 4), "call"))),
                .lane = lane,
                .start_ns = row.integer(0),
                .end_ns = row.integer(1),
                .correlation = id},
               row);
         });
  }

  void add(record::Activity activity, const record::Statement& row) {
    if (row.is_null(0) || row.is_null(1)) return run_.count("rows without start or end were left out");
    run_.add(std::move(activity));
  }

  void read_kernels() {
    const bool has_name = columns("CUPTI_ACTIVITY_KIND_KERNEL").contains("demangledName");
    rows("CUPTI_ACTIVITY_KIND_KERNEL",
         {"start", "end", "deviceId", "streamId", "correlationId", "globalPid",
          has_name ? "demangledName" : "shortName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
          "registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread",
          "graphNodeId"},
         [&](const record::Statement& row) {
           std::string extra;
           if (!row.is_null(7)) {
             extra = fmt::format(R"({{"grid":[{},{},{}],"block":[{},{},{}])", row.integer(7), row.integer(8),
                                 row.integer(9), row.integer(10), row.integer(11), row.integer(12));
             constexpr const char* kMembers[] = {"registers", "shared_static", "shared_dynamic", "local",
                                                 "node"};
             for (int i = 0; i < 5; ++i) {
               if (!row.is_null(13 + i))
                 extra += fmt::format(R"(,"{}":{})", kMembers[i], row.integer(13 + i));
             }
             extra += "}";
           }
           add({.name = run_.name("kernel", text(number(row, 6), "kernel")),
                .lane = stream_lane(row.integer(2), row.integer(3)),
                .start_ns = row.integer(0),
                .end_ns = row.integer(1),
                .correlation = correlation(number(row, 4), number(row, 5)),
                .extra = extra},
               row);
         });
  }

  void read_copies() {
    for (const bool is_copy : {true, false}) {
      rows(is_copy ? "CUPTI_ACTIVITY_KIND_MEMCPY" : "CUPTI_ACTIVITY_KIND_MEMSET",
           {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind"},
           [&](const record::Statement& row) {
             add({.name =
                      is_copy ? run_.name("copy", copy_text(row.integer(7))) : run_.name("memset", "memset"),
                  .lane = stream_lane(row.integer(2), row.integer(3)),
                  .start_ns = row.integer(0),
                  .end_ns = row.integer(1),
                  .correlation = correlation(number(row, 4), number(row, 5)),
                  .bytes = number(row, 6)},
                 row);
           });
    }
  }

  /// Graphs that were traced as a whole, not node by node.
  void read_graphs() {
    rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
         {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId"},
         [&](const record::Statement& row) {
           add({.name = run_.name("kernel", fmt::format("graph {} as a whole", row.integer(6))),
                .lane = stream_lane(row.integer(2), row.integer(3)),
                .start_ns = row.integer(0),
                .end_ns = row.integer(1),
                .correlation = correlation(number(row, 4), number(row, 5))},
               row);
         });
  }

  void read_synchronization() {
    constexpr const char* kWaits[] = {"wait", "wait for an event", "a stream waits for an event",
                                      "wait for a stream", "wait for the device"};
    rows("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", {"start", "end", "correlationId", "globalPid", "syncType"},
         [&](const record::Statement& row) {
           const auto id = correlation(number(row, 2), number(row, 3));
           const auto thread = id ? thread_of_call_.find(*id) : thread_of_call_.end();
           const auto type = row.integer(4);
           add({.name = run_.name("sync", kWaits[type >= 1 && type <= 4 ? type : 0]),
                .lane = thread != thread_of_call_.end() ? thread->second
                                                        : thread_lane(number(row, 3).value_or(0)),
                .start_ns = row.integer(0),
                .end_ns = row.integer(1),
                .correlation = id},
               row);
         });
  }

  void read_memory() {
    rows("CUDA_GPU_MEMORY_USAGE_EVENTS", {"start", "deviceId", "address", "bytes", "memoryOperationType"},
         [&](const record::Statement& row) {
           const std::int64_t bytes = row.integer(3);
           if (row.is_null(0) || bytes <= 0)
             return run_.count("allocations with impossible times or sizes were left out");
           run_.add_memory(row.integer(0), row.integer(4) == 1 ? -bytes : bytes, number(row, 2),
                           fmt::format("cuda:{}", std::clamp<std::int64_t>(row.integer(1), 0, 255)));
         });
  }

  void read_ranges() {
    std::map<std::pair<std::int64_t, std::int64_t>, std::string> domains;  // process, domain
    const auto name_of = [&](const record::Statement& row, int text_column, int id_column) {
      const auto id = number(row, id_column);
      return id ? text(id, "range") : row.text(text_column);
    };
    rows("NVTX_EVENTS", {"eventType", "globalTid", "domainId", "text", "textId"},
         [&](const record::Statement& row) {
           if (row.integer(0) == kDomain)
             domains[{row.integer(1) >> 24U, row.integer(2)}] = name_of(row, 3, 4);
         });
    rows("NVTX_EVENTS", {"start", "end", "eventType", "globalTid", "text", "textId", "domainId"},
         [&](const record::Statement& row) {
           const std::int64_t type = row.integer(2);
           if (type != kMark && type != kPushPop && type != kStartEnd) return;
           if (row.is_null(0)) return run_.count("rows without start or end were left out");
           const bool has_end = !row.is_null(1);
           if (!has_end && type != kMark) run_.count("ranges without an end last until the last event");
           std::string name = name_of(row, 4, 5);
           const auto domain = domains.find({row.integer(3) >> 24U, row.integer(6)});
           std::string extra = type == kPushPop ? "" : fmt::format(R"("nvtx":{})", type);
           if (row.integer(6) != 0 && domain != domains.end() && !domain->second.empty()) {
             extra += fmt::format(R"({}"domain":{})", extra.empty() ? "" : ",", domain->second.size());
             name = domain->second + ":" + name;
           }
           const std::int64_t start = row.integer(0);
           const std::int64_t end = has_end         ? row.integer(1)
                                    : type == kMark ? start
                                                    : std::max(start, run_.last_ns());
           run_.add({.name = run_.name("range", name),
                     .lane = thread_lane(row.integer(3)),
                     .start_ns = start,
                     .end_ns = end,
                     .extra = extra.empty() ? "" : "{" + extra + "}"});
         });
  }

  std::filesystem::path path_;
  ForeignRun& run_;
  record::Database database_;
  std::map<std::string, std::set<std::string>> columns_;
  std::unordered_map<std::int64_t, std::string> texts_;
  std::map<std::int64_t, std::int64_t> processes_;
  std::unordered_map<std::int64_t, std::int64_t> thread_of_call_;
};

}  // namespace

void read_nsys(const std::filesystem::path& path, ForeignRun& run) { NsysReader(path, run).read(); }

}  // namespace rooflm::foreign
