// Hardware counters of this process.
#include "measure/counters.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace rooflm::measure {
namespace {

/// The counts of a group and the nanoseconds in which it was wanted and in which it had its counters.
struct Reading {
  std::uint64_t enabled_ns = 0;
  std::uint64_t running_ns = 0;
  std::vector<std::uint64_t> counts;
};

int open_event(const CounterEvent& event, int thread, int leader) {
  perf_event_attr attributes{};
  attributes.size = sizeof(attributes);
  attributes.type = event.type;
  attributes.config = event.config;
  attributes.disabled = leader < 0 ? 1U : 0U;  // the members follow their leader
  const bool is_thread = event.cpu < 0;
  attributes.exclude_kernel = is_thread ? 1U : 0U;  // memory controllers cannot tell the modes apart
  attributes.exclude_hv = is_thread ? 1U : 0U;
  attributes.read_format =
      PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  const long fd = syscall(SYS_perf_event_open, &attributes, is_thread ? thread : -1, event.cpu, leader,
                          PERF_FLAG_FD_CLOEXEC);
  return static_cast<int>(fd);
}

/// The threads of this process.
std::vector<int> thread_ids() {
  std::vector<int> ids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const std::string name = entry.path().filename().string();
    int id = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), id).ec == std::errc()) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::string why_refused(int error) {
  switch (error) {
    case ENOENT:
    case ENODEV:
    case EOPNOTSUPP:
      return "no hardware counters here (virtual machines often lack them)";
    case ENOSYS:
      return "this kernel has no perf_event_open";
    case EACCES:
    case EPERM: {
      std::ifstream file("/proc/sys/kernel/perf_event_paranoid");
      std::string level;
      std::getline(file, level);
      return fmt::format(
          "not permitted: /proc/sys/kernel/perf_event_paranoid is {}, 2 or less is needed, or a "
          "container forbids perf_event_open",
          level.empty() ? "unreadable" : level);
    }
    default:
      return fmt::format("perf_event_open: {}", std::strerror(error));
  }
}

}  // namespace

/// The events of a group on one thread or one processor, counted together.
class Counters::Group {
 public:
  explicit Group(const CounterGroup& events) : events_(events) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    for (const int fd : descriptors_) ::close(fd);
  }

  /// 0, or the error of the event that the system refused.
  int open(int thread) {
    for (const CounterEvent& event : events_) {
      const int fd = open_event(event, thread, descriptors_.empty() ? -1 : descriptors_.front());
      if (fd < 0) return errno;
      descriptors_.push_back(fd);
    }
    return 0;
  }

  /// Times are never reset by the kernel, so that both counts and times are differences.
  void start() {
    before_ = take();
    ::ioctl(descriptors_.front(), PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
  }
  void stop() {
    ::ioctl(descriptors_.front(), PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
    after_ = take();
  }

  [[nodiscard]] const CounterGroup& events() const { return events_; }
  [[nodiscard]] double enabled() const { return static_cast<double>(after_.enabled_ns - before_.enabled_ns); }
  [[nodiscard]] double running() const { return static_cast<double>(after_.running_ns - before_.running_ns); }
  [[nodiscard]] double count(std::size_t event) const {
    return static_cast<double>(after_.counts[event] - before_.counts[event]);
  }
  [[nodiscard]] bool has_counted() const {
    return after_.counts.size() == before_.counts.size() && !after_.counts.empty();
  }

 private:
  [[nodiscard]] Reading take() const {
    constexpr std::size_t kHeader = 3;  // number of events, time enabled, time running
    std::vector<std::uint64_t> words(kHeader + events_.size());
    const std::size_t bytes = words.size() * sizeof(words.front());
    if (::read(descriptors_.front(), words.data(), bytes) != static_cast<ssize_t>(bytes)) return {};
    return {.enabled_ns = words[1], .running_ns = words[2], .counts = {words.begin() + kHeader, words.end()}};
  }

  CounterGroup events_;
  std::vector<int> descriptors_;  ///< the first is the leader
  Reading before_, after_;
};

Counters::Counters(const std::vector<CounterGroup>& groups) {
  int refused = ENOENT;
  const std::vector<int> threads = thread_ids();
  const auto open_all = [&](const CounterGroup& events) {
    std::vector<std::unique_ptr<Group>> opened;
    const bool is_process = events.front().cpu < 0;
    for (std::size_t i = 0; i < (is_process ? threads.size() : 1); ++i) {
      auto group = std::make_unique<Group>(events);
      const int error = group->open(is_process ? threads[i] : -1);
      if (error == ESRCH) continue;  // the thread has ended meanwhile
      if (error != 0) {
        refused = error;
        return;
      }
      opened.push_back(std::move(group));
    }
    std::move(opened.begin(), opened.end(), std::back_inserter(groups_));
  };
  for (const CounterGroup& events : groups) {
    if (!events.empty()) open_all(events);
  }
  if (groups_.empty()) reason_ = why_refused(refused);
}

Counters::Counters(Counters&&) noexcept = default;
Counters& Counters::operator=(Counters&&) noexcept = default;
Counters::~Counters() = default;

void Counters::start() {
  for (const auto& group : groups_) group->start();
}

void Counters::stop() {
  for (const auto& group : groups_) group->stop();
}

std::vector<CounterValue> Counters::read() const {
  std::vector<CounterValue> values;
  std::vector<std::string> lost;
  for (const auto& group : groups_) {
    if (!group->has_counted()) continue;
    const double share = group->enabled() > 0 ? group->running() / group->enabled() : 1;
    for (std::size_t i = 0; i < group->events().size(); ++i) {
      const CounterEvent& event = group->events()[i];
      if (share <= 0) lost.push_back(event.name);
      auto found = std::find_if(values.begin(), values.end(),
                                [&](const CounterValue& value) { return value.name == event.name; });
      if (found == values.end()) {
        found = values.insert(values.end(),
                              {.name = event.name, .value = 0, .unit = event.unit, .time_share = 1});
      }
      if (share > 0) found->value += event.weight * group->count(i) / share;
      found->time_share = std::min(found->time_share, share);
    }
  }
  std::erase_if(values, [&](const CounterValue& value) {
    return std::find(lost.begin(), lost.end(), value.name) != lost.end();
  });
  return values;
}

}  // namespace rooflm::measure
