// Databases of `nsys export --type sqlite`. Tables and columns differ from version to version: what is
// missing is left out, and only what is there is asked for.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <map>
#include <set>
#include <unordered_map>

#include "core/error.h"
#include "core/printable.h"
#include "foreign/import.h"
#include "foreign/missing_work.h"
#include "record/database.h"

namespace rooflm::foreign {
namespace {

constexpr std::int64_t kLow24 = 0xFFFFFF;
constexpr int kMark = 34;
constexpr int kPushPop = 59;
constexpr int kStartEnd = 60;
constexpr int kDomain = 75;
constexpr int kCategory = 33;  // names, as the next
constexpr int kThreadName = 39;

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
        std::ranges::any_of(kTables, [&](const char* table) { return !table_of(table).empty(); });
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
    say_missing_work(run_);
    say_unread_tables();
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

  /// The table of that name, else its newest version: CUPTI_ACTIVITY_KIND_KERNEL_V3. "" where there is none.
  std::string table_of(const std::string& table) {
    if (tables_.empty()) {
      record::Statement names = database_.prepare("SELECT name FROM sqlite_master WHERE type = 'table'");
      while (names.step()) tables_.push_back(names.text(0));
    }
    std::string found;
    int newest = 0;
    for (const std::string& name : tables_) {
      if (name == table) return name;
      if (!name.starts_with(table + "_V")) continue;
      int version = 0;
      const auto parsed = std::from_chars(name.data() + table.size() + 2, name.data() + name.size(), version);
      if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size() || version <= newest) continue;
      newest = version;
      found = name;
    }
    return found;
  }

  /// The rows of a table, as far as it has these columns: others are NULL.
  template <class Take>
  void rows(const std::string& table, std::initializer_list<const char*> wanted, const Take& take) {
    const std::string found = table_of(table);
    if (found.empty()) return;
    read_.insert(found);
    rows_of(found, wanted, take);
  }

  template <class Take>
  void rows_of(const std::string& table, std::initializer_list<const char*> wanted, const Take& take) {
    const std::set<std::string>& known = columns(table);
    std::string list;
    for (const char* column : wanted) {
      list += fmt::format("{}{}", list.empty() ? "" : ", ",
                          known.contains(column) ? fmt::format("\"{}\"", column) : "NULL");
      // Without these, rows are on the wrong lane or of no call.
      constexpr std::string_view kNeeded[] = {"start", "deviceId", "streamId", "correlationId", "globalTid"};
      if (!known.contains(column) &&
          std::ranges::find(kNeeded, std::string_view(column)) != std::end(kNeeded)) {
        lacking_.insert(fmt::format("{}.{}", table, column));
      }
    }
    record::Statement statement = database_.prepare(fmt::format("SELECT {} FROM \"{}\"", list, table));
    while (statement.step()) take(statement);
  }

  /// Tables of events that are not read, and columns that are not there.
  void say_unread_tables() {
    std::vector<std::string> unread;
    for (const std::string& table : tables_) {
      if (read_.contains(table) || !columns(table).contains("start")) continue;
      const std::string has_rows = fmt::format("SELECT EXISTS (SELECT 1 FROM \"{}\")", doubled(table));
      if (database_.query_integer(has_rows) != 0) unread.push_back(core::printable(table));
    }
    if (!unread.empty()) run_.say(fmt::format("tables that are not read: {}", fmt::join(unread, ", ")));
    if (!lacking_.empty()) {
      run_.say(fmt::format("missing columns, whose values are unknown: {}", fmt::join(lacking_, ", ")));
    }
  }

  /// As a name within quotes.
  static std::string doubled(const std::string& name) {
    std::string text;
    for (const char c : name) text += c == '"' ? std::string("\"\"") : std::string(1, c);
    return text;
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
      run_.device_names[fmt::format("cuda:{}", device)] = core::printable(row.text(1));
      multiprocessors[device] = row.integer(2);
    });
    run_.add_multiprocessors(multiprocessors);
    rows("TARGET_INFO_CUDA_DEVICE", {"gpuId", "cudaId", "pid"}, [&](const record::Statement& row) {
      if (!row.is_null(0) && !row.is_null(1))
        devices_[{row.integer(2) & kLow24, row.integer(1)}] = row.integer(0);
    });
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

  std::string device_name(std::int64_t process, std::int64_t device) {
    const auto known = devices_.find({process, device});
    if (known != devices_.end()) device = known->second;
    return fmt::format("cuda:{}", std::clamp<std::int64_t>(device, 0, 255));
  }

  /// Of the device and stream in the third and fourth column. Each process numbers its own streams, and those
  /// devices that it sees.
  std::int64_t stream_lane(const record::Statement& row, int global_column) {
    const std::int64_t process = number(row, global_column).value_or(0) >> 24U & kLow24;
    const std::string device = device_name(process, row.integer(2));
    const std::int64_t stream = row.integer(3);
    return run_.lane(
        fmt::format("stream {} {} {}", process, device, stream),
        {.kind = "device", .device = device, .stream = stream, .name = fmt::format("stream {}", stream)});
  }

  void read_calls() {
    for (const char* table : {"CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"}) {
      rows(table, {"start", "end", "globalTid", "correlationId", "nameId"},
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
  }

  void add(record::Activity activity, const record::Statement& row) {
    if (row.is_null(0) || row.is_null(1)) return run_.count("rows without start or end were left out");
    run_.add(std::move(activity));
  }

  void read_kernels() {
    rows("CUPTI_ACTIVITY_KIND_KERNEL",
         {"start",
          "end",
          "deviceId",
          "streamId",
          "correlationId",
          "globalPid",
          "demangledName",
          "gridX",
          "gridY",
          "gridZ",
          "blockX",
          "blockY",
          "blockZ",
          "registersPerThread",
          "staticSharedMemory",
          "dynamicSharedMemory",
          "localMemoryPerThread",
          "graphNodeId",
          "shortName",
          "mangledName"},
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
           const int name = !row.is_null(6) ? 6 : !row.is_null(18) ? 18 : 19;
           add({.name = run_.name("kernel", text(number(row, name), "kernel")),
                .lane = stream_lane(row, 5),
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
                  .lane = stream_lane(row, 5),
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
                .lane = stream_lane(row, 5),
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
    rows("CUDA_GPU_MEMORY_USAGE_EVENTS",
         {"start", "deviceId", "address", "bytes", "memoryOperationType", "globalPid"},
         [&](const record::Statement& row) {
           const std::int64_t bytes = row.integer(3);
           if (row.is_null(0) || bytes <= 0)
             return run_.count("allocations with impossible times or sizes were left out");
           run_.add_memory(row.integer(0), row.integer(4) == 1 ? -bytes : bytes, number(row, 2),
                           device_name(row.integer(5) >> 24U & kLow24, row.integer(1)));
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
           if (type == kDomain || type == kCategory || type == kThreadName) return;
           if (type != kMark && type != kPushPop && type != kStartEnd)
             return run_.count("NVTX events of other types were left out");
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
  std::vector<std::string> tables_;
  std::set<std::string> read_, lacking_;
  std::unordered_map<std::int64_t, std::string> texts_;
  std::map<std::int64_t, std::int64_t> processes_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> devices_;  ///< process, its number; the GPU's
  std::unordered_map<std::int64_t, std::int64_t> thread_of_call_;
};

}  // namespace

void read_nsys(const std::filesystem::path& path, ForeignRun& run) { NsysReader(path, run).read(); }

}  // namespace rooflm::foreign
