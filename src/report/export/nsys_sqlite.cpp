// The database that `nsys export --type sqlite` makes: the tables and columns that its stats scripts ask for.
#include <fmt/format.h>

#include <chrono>
#include <map>

#include "record/database.h"
#include "report/export/export.h"
#include "report/export/memory_places.h"
#include "report/model/kernel_names.h"
#include "report/model/launch_shape.h"

namespace rooflm::report {
namespace {

constexpr const char* kFixedTables = R"sql(
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL PRIMARY KEY, name TEXT, busLocation TEXT, isDiscrete INTEGER,
  l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER,
  pwGpuId INTEGER, uuid TEXT, chipName TEXT, computeMajor INTEGER, computeMinor INTEGER, cuDevice INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER NOT NULL, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL,
  uuid TEXT, numMultiprocessors INTEGER);
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.17.0'), ('EXPORT_PRODUCT_VERSION', 'rooflm');
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (0, 'CUDA_MEMCPY_KIND_UNKNOWN', 'Unknown'),
  (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device'), (2, 'CUDA_MEMCPY_KIND_DTOH', 'Device-to-Host'),
  (8, 'CUDA_MEMCPY_KIND_DTOD', 'Device-to-Device'), (9, 'CUDA_MEMCPY_KIND_HTOH', 'Host-to-Host'),
  (10, 'CUDA_MEMCPY_KIND_PTOP', 'Peer-to-Peer');
INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', 'Pageable'),
  (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', 'Pinned'), (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device'),
  (4, 'CUDA_MEMOPR_MEMORY_KIND_MANAGED', 'Managed');
)sql";

/// nsys makes a table when it has a row for it, and its scripts look which tables are there.
struct LazyTable {
  const char* name;
  const char* columns;
};
constexpr LazyTable kKernels{
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
    "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, "
    "cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT "
    "NULL, "
    "gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, "
    "staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread "
    "INTEGER, "
    "localMemoryTotal INTEGER, gridId INTEGER, sharedMemoryExecuted INTEGER, graphNodeId INTEGER, "
    "sharedMemoryLimitConfig INTEGER"};
constexpr LazyTable kCopies{
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
    "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
    "bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind "
    "INTEGER, "
    "srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, migrationCause "
    "INTEGER, "
    "graphNodeId INTEGER, virtualAddress INTEGER"};
constexpr LazyTable kMemsets{
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
    "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value "
    "INTEGER, "
    "bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER"};
constexpr LazyTable kCalls{"CUPTI_ACTIVITY_KIND_RUNTIME",
                           "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, "
                           "globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, "
                           "returnValue INTEGER NOT NULL, callchainId INTEGER"};
constexpr LazyTable kSyncs{
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER, contextId INTEGER, "
    "greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, "
    "syncType INTEGER NOT NULL, eventId INTEGER"};
constexpr LazyTable kRanges{
    "NVTX_EVENTS",
    "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, "
    "color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, "
    "uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, "
    "floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT"};
constexpr LazyTable kMemory{
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "start INTEGER NOT NULL, globalPid INTEGER, deviceId INTEGER, contextId INTEGER, "
    "address INTEGER, pc INTEGER, bytes INTEGER NOT NULL, memKind INTEGER, "
    "memoryOperationType INTEGER, name TEXT, correlationId INTEGER, streamId INTEGER, "
    "localMemoryPoolAddress INTEGER, localMemoryPoolReleaseThreshold INTEGER, "
    "localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER"};
constexpr int kMark = 34;
constexpr int kPushPop = 59;
constexpr int kStartEnd = 60;
constexpr int kDomain = 75;

using Integer = std::optional<std::int64_t>;

class NsysWriter {
 public:
  NsysWriter(const ExportSource& source, const std::filesystem::path& path)
      : source_(source),
        trace_(source.run, source.scope),
        database_(path, record::Database::Mode::write, std::chrono::seconds(1)) {}

  std::vector<std::string> write() {
    database_.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN");
    database_.execute(kFixedTables);
    write_devices();
    for (const TraceEvent& event : trace_.events()) write_event(event);
    write_ranges();
    for (const MemoryChange& change : placed_memory(source_.run).changes) {
      if (change.event->time_ns == 0 && change.event->op) {
        has_untimed_memory_ = true;
        continue;
      }
      put_memory(change.event->time_ns, change.device, change.address, change.bytes);
    }
    database_.execute("COMMIT");
    std::vector<std::string> notes = trace_.notes();
    if (rows_ == 0) notes.push_back(fmt::format("run {} has nothing that nsys records", source_.run.run.id));
    if (has_untimed_memory_)
      notes.emplace_back("memory events have no times here: nsys has no other place for them");
    if (others_ > 0)
      notes.push_back(fmt::format("{} events are of kinds that nsys has no table for", others_));
    if (hidden_ > 0) {
      notes.push_back(fmt::format("{} phases and ops {}: nsys would not see them, so they are not ranges",
                                  hidden_,
                                  has_calls_ ? "were launched by calls that launched others, too (replays of "
                                               "graphs)"
                                             : "have no calls that launched them"));
    }
    return notes;
  }

 private:
  void write_devices() {
    std::map<std::int64_t, std::string> devices;
    for (const TraceEvent& event : trace_.events()) {
      if (event.lane->kind == "device")
        devices.try_emplace(numbers_.of(event.lane->device), event.lane->device);
    }
    for (const auto& [number, name] : devices) {
      const std::string title = device_title(source_.file, name);
      const std::int64_t multiprocessors = multiprocessors_of(source_.run, name);
      record::Statement gpu =
          database_.prepare("INSERT INTO TARGET_INFO_GPU (id, name, smCount, cuDevice) VALUES (?, ?, ?, ?)");
      gpu.bind(number);
      gpu.bind(std::string_view(title));
      gpu.bind(multiprocessors);
      gpu.bind(number);
      gpu.run();
      // Devices of a process are numbered anew in it; the record knows one number.
      record::Statement device = database_.prepare(
          "INSERT INTO TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid, numMultiprocessors) VALUES (?, ?, ?, ?)");
      device.bind(number);
      device.bind(number);
      device.bind(trace_.process());
      device.bind(multiprocessors);
      device.run();
    }
  }

  std::int64_t text_id(std::string_view text) {
    const auto [entry, is_new] =
        texts_.try_emplace(std::string(text), static_cast<std::int64_t>(texts_.size()) + 1);
    if (is_new) {
      if (!add_text_) add_text_.emplace(database_.prepare("INSERT INTO StringIds VALUES (?, ?)"));
      add_text_->bind(entry->second);
      add_text_->bind(std::string_view(entry->first));
      add_text_->run();
    }
    return entry->second;
  }

  /// A row of the named columns; the table is made with its first row.
  void put(const LazyTable& table, const char* columns, std::initializer_list<Integer> values) {
    auto found = statements_.find(table.name);
    if (found == statements_.end()) {
      database_.execute(fmt::format("CREATE TABLE {} ({})", table.name, table.columns));
      std::string places = "?";
      for (std::size_t i = 1; i < values.size(); ++i) places += ", ?";
      found = statements_
                  .emplace(table.name, database_.prepare(fmt::format("INSERT INTO {} ({}) VALUES ({})",
                                                                     table.name, columns, places)))
                  .first;
    }
    for (const Integer& value : values) found->second.bind(value);
    found->second.run();
    ++rows_;
  }

  [[nodiscard]] Integer global_pid() const { return trace_.process() << 24U; }
  [[nodiscard]] Integer global_tid(const record::Lane& lane) const {
    return trace_.process() << 24U | trace_.thread_of(lane);
  }

  void write_event(const TraceEvent& event) {
    const Integer device = numbers_.of(event.lane->device);
    const Integer stream = event.lane->stream.value_or(event.lane->lane);
    if (is_kernel_event(event)) {
      const LaunchShape shape = parse_launch(event.extra);
      const Integer name = text_id(event.name);
      put(kKernels,
          "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName, "
          "mangledName, "
          "registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, "
          "dynamicSharedMemory, "
          "localMemoryPerThread",
          {event.start_ns,
           event.end_ns,
           device,
           1,
           stream,
           event.correlation,
           global_pid(),
           name,
           text_id(parse_kernel_name(event.name).base_name),
           name,
           shape.registers.value_or(0),
           shape.grid[0],
           shape.grid[1],
           shape.grid[2],
           shape.block[0],
           shape.block[1],
           shape.block[2],
           shape.shared_static.value_or(0),
           shape.shared_dynamic.value_or(0),
           shape.local});
    } else if (event.kind == "copy") {
      const int kind = copy_kind(event.name);
      const Integer source = kind == 1 || kind == 9 ? 0 : 2;
      const Integer target = kind == 2 || kind == 9 ? 0 : 2;
      put(kCopies,
          "start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, "
          "dstKind",
          {event.start_ns, event.end_ns, device, 1, stream, event.correlation, global_pid(),
           event.bytes.value_or(0), kind, source, target});
    } else if (event.kind == "memset") {
      put(kMemsets, "start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, memKind",
          {event.start_ns, event.end_ns, device, 1, stream, event.correlation, global_pid(),
           event.bytes.value_or(0), 2});
    } else if (event.kind == "api") {
      has_calls_ = true;
      put(kCalls, "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
          {event.start_ns, event.end_ns, event.name.starts_with("cuda") ? 0 : 1, global_tid(*event.lane),
           event.correlation, text_id(event.name), 0});
    } else if (event.kind == "sync") {
      put(kSyncs, "start, end, contextId, streamId, correlationId, globalPid, syncType",
          {event.start_ns, event.end_ns, 1, Integer(), event.correlation, global_pid(),
           sync_kind(event.name)});
    } else if (event.kind == "memory") {
      put_memory(event.start_ns, event.lane->device, address_of(event), event.bytes.value_or(0));
    } else if (event.kind != "range" && event.kind != "op") {
      ++others_;
    }
  }

  void write_ranges() {
    for (const TraceRange& range : trace_.ranges()) {
      if (range.thread == nullptr || range.thread->kind != "host") {
        ++hidden_;
        continue;
      }
      using Style = NvtxRange::Style;
      const bool is_mark = range.nvtx.style == Style::mark;
      const std::string_view name = range.name;
      const std::size_t size = range.nvtx.domain_size;
      put(kRanges, "start, end, eventType, globalTid, textId, domainId",
          {range.start_ns, is_mark ? Integer() : range.end_ns,
           is_mark                                ? kMark
           : range.nvtx.style == Style::start_end ? kStartEnd
                                                  : kPushPop,
           global_tid(*range.thread), text_id(size == 0 ? name : name.substr(size + 1)),
           domain_id(name.substr(0, size))});
    }
  }

  /// The number of a domain, 0 of the default one; its name is a row of its own.
  std::int64_t domain_id(std::string_view name) {
    if (name.empty()) return 0;
    const auto [entry, is_new] =
        domains_.try_emplace(std::string(name), static_cast<std::int64_t>(domains_.size()) + 1);
    if (is_new) {
      put(kRanges, "start, end, eventType, globalTid, textId, domainId",
          {0, Integer(), kDomain, trace_.process() << 24U, text_id(name), entry->second});
    }
    return entry->second;
  }

  void put_memory(std::int64_t time_ns, std::string_view device, const Integer& address, std::int64_t bytes) {
    if (!is_gpu(device)) return;
    put(kMemory, "start, globalPid, deviceId, contextId, address, bytes, memKind, memoryOperationType",
        {time_ns, global_pid(), numbers_.of(device), 1, address, bytes < 0 ? -bytes : bytes, 2,
         bytes < 0 ? 1 : 0});
  }

  const ExportSource& source_;
  Trace trace_;
  record::Database database_;
  DeviceNumbers numbers_;
  std::map<std::string, std::int64_t> texts_, domains_;
  std::optional<record::Statement> add_text_;
  std::map<std::string, record::Statement> statements_;
  std::size_t rows_ = 0, hidden_ = 0, others_ = 0;
  bool has_untimed_memory_ = false, has_calls_ = false;
};

}  // namespace

std::vector<std::string> write_nsys_sqlite(const ExportSource& source, const std::filesystem::path& path) {
  return NsysWriter(source, path).write();
}

}  // namespace rooflm::report
