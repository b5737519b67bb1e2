// Events of Chrome traces as rows of a run. Private to the room.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "foreign/foreign_run.h"
#include "foreign/merged_ranks.h"

namespace rooflm::foreign {

/// One object of "traceEvents", as far as it is known. Numbers that are missing or no whole ones are nothing.
struct RawEvent {
  std::string phase{}, category{}, name{}, process_text{}, thread_text{};
  std::optional<std::int64_t> start_ns{}, duration_ns{}, process{}, thread{};
  std::optional<std::int64_t> stream{}, device{}, correlation{}, bytes{}, step{};
  std::optional<std::int64_t> memory_bytes{}, address{}, device_type{}, device_id{}, total_allocated{},
      total_reserved{};
  std::optional<std::int64_t> flow{};  ///< the number of an arrow
  std::optional<std::int64_t> rank{};  ///< of a file into which somebody merged those of several ranks
  std::string arg_name{};              ///< args.name, of metadata
  std::string extra{};                 ///< members of record::Activity::extra, of a kernel
  std::string inputs{};                ///< the same, of an operator: shapes, dtypes, stack

  void set_text(std::string_view key, const std::string& text);
  void set_number(std::string_view key, std::optional<std::int64_t> value);
  void set_arg_text(std::string_view key, const std::string& text);
  void set_arg_number(std::string_view key, double value, std::optional<std::int64_t> whole);
  /// A list of the arguments, as JSON: the shapes and dtypes of an operator, the grid of a kernel.
  void set_arg_list(std::string_view key, const std::string& json);
};

inline constexpr std::int64_t kMostTraceDevices = 256;

class TraceEvents {
 public:
  TraceEvents(ForeignRun& run, const std::string& where) : run_(run), where_(where) {}
  void set_base(std::int64_t epoch_utc_ns) { run_.epoch_utc_ns = epoch_utc_ns; }
  void set_multiprocessors(std::int64_t device, std::int64_t count) { multiprocessors_[device] = count; }
  void set_rank(std::int64_t rank) { rank_ = rank; }
  void set_world_size(std::int64_t ranks) { world_size_ = ranks; }
  void name_device(std::int64_t device, const std::string& name) { device_names_[device] = name; }
  void take(const RawEvent& event);
  /// Names lanes and finds out what events without a category were.
  void finish();
  [[nodiscard]] std::size_t size() const { return taken_; }

 private:
  using Track = std::pair<std::int64_t, std::int64_t>;  ///< process, thread
  /// A "B" that has no "E" yet.
  struct Open {
    std::int64_t start_ns = 0;
    std::string category, name;
  };

  /// An event of the allocator of a device.
  struct Allocation {
    std::int64_t time_ns = 0, bytes = 0;
    std::optional<std::int64_t> address, total, reserved;
  };
  /// Where an arrow begins or ends: on a track, with the event that begins there.
  using Moment = std::pair<Track, std::int64_t>;

  void take_slice(const RawEvent& event);
  void take_memory(const RawEvent& event);
  void take_name(const RawEvent& event);
  void count_unread(const RawEvent& event);
  [[nodiscard]] Track track_of(const RawEvent& event);
  std::int64_t host_lane(const Track& track);
  void name_lanes();
  void find_kinds();
  void follow_arrows();
  void add_memory(const MergedRanks& ranks);
  [[nodiscard]] std::string process_label(std::int64_t process) const;

  ForeignRun& run_;
  const std::string& where_;
  std::map<Track, std::vector<Open>> open_;
  std::map<std::int64_t, std::string> process_names_, device_names_;
  std::map<Track, std::string> thread_names_;
  std::map<Track, std::int64_t> host_lanes_;
  std::map<std::string, std::int64_t> text_numbers_;  ///< of processes and threads that are texts
  std::vector<std::int64_t> processes_;               ///< of each activity
  std::map<std::int64_t, std::string> texts_;         ///< which text a number stands for
  std::map<std::int64_t, std::int64_t> ranks_;        ///< of processes whose events name it
  std::set<std::int64_t> device_lanes_;               ///< that only names show to be of a device
  std::map<std::pair<std::int64_t, std::string>, std::vector<Allocation>> allocations_;  ///< process, device
  std::map<std::int64_t, std::pair<std::optional<Moment>, std::optional<Moment>>> arrows_;
  std::set<std::string> unknown_categories_, device_types_;
  std::map<std::int64_t, std::int64_t> multiprocessors_;
  std::optional<std::int64_t> rank_, world_size_;
  std::size_t taken_ = 0;
};

}  // namespace rooflm::foreign
