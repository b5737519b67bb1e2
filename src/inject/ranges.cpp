// Ranges and marks that a program opens and closes.
#include "inject/ranges.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "inject/session.h"

namespace rooflm::inject {
namespace {

struct OpenRange {
  const void* domain = nullptr;
  std::uint32_t name = 0, extra = 0;
  std::uint64_t start_ns = 0;
  RangeKind kind = RangeKind::user;
};

std::vector<OpenRange>& open_ranges() {
  thread_local std::vector<OpenRange> ranges;
  return ranges;
}

/// Those that another thread may close.
struct Started {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, OpenRange> ranges;
  std::uint64_t next = 1;
};
Started& started() {
  static auto* all = new Started;  // threads may still run when the process ends
  return *all;
}

Row row_of(const OpenRange& range, RowKind kind, std::uint64_t end_ns) {
  return {.kind = kind,
          .range = range.kind,
          .name = range.name,
          .start_ns = range.start_ns,
          .end_ns = end_ns,
          .place = thread_number(),
          .extra = range.extra};
}

int depth_of(const void* domain) {
  return static_cast<int>(std::ranges::count(open_ranges(), domain, &OpenRange::domain));
}

}  // namespace

int push_range(const void* domain, std::uint32_t name, RangeKind kind, std::uint32_t extra,
               bool wants_depth) {
  open_ranges().push_back(
      {.domain = domain, .name = name, .extra = extra, .start_ns = now_ns(), .kind = kind});
  return wants_depth ? depth_of(domain) - 1 : 0;
}

std::uint32_t pop_range(const void* domain) {
  Session* session = Session::current();
  std::vector<OpenRange>& ranges = open_ranges();
  const auto last = std::find_if(ranges.rbegin(), ranges.rend(),
                                 [&](const OpenRange& range) { return range.domain == domain; });
  if (last == ranges.rend()) {
    if (session != nullptr) session->writer().count_odd_pop();
    return 0;
  }
  const OpenRange range = *last;
  ranges.erase(std::next(last).base());
  if (session != nullptr && session->is_on()) {
    session->writer().add(row_of(range, RowKind::range, now_ns()));
  }
  return range.name;
}

std::uint64_t start_range(std::uint32_t name, std::uint32_t extra) {
  Started& all = started();
  const std::scoped_lock lock(all.mutex);
  all.ranges[all.next] = {.name = name, .extra = extra, .start_ns = now_ns()};
  return all.next++;
}

std::uint32_t end_range(std::uint64_t number) {
  Session* session = Session::current();
  OpenRange range;
  {
    Started& all = started();
    const std::scoped_lock lock(all.mutex);
    const auto found = all.ranges.find(number);
    if (found == all.ranges.end()) {
      if (session != nullptr) session->writer().count_odd_pop();
      return 0;
    }
    range = found->second;
    all.ranges.erase(found);
  }
  if (session != nullptr && session->is_on()) {
    session->writer().add(row_of(range, RowKind::range, now_ns()));
  }
  return range.name;
}

void add_mark(std::uint32_t name, RangeKind kind, std::uint32_t extra) {
  Session* session = Session::current();
  if (session == nullptr || !session->is_on()) return;
  const std::uint64_t now = now_ns();
  session->writer().add(
      row_of({.name = name, .extra = extra, .start_ns = now, .kind = kind}, RowKind::mark, now));
}

void add_stack(std::uint32_t stack, std::uint32_t thread) {
  Session* session = Session::current();
  if (session == nullptr || !session->is_on()) return;
  const std::uint64_t now = now_ns();
  session->writer().add({.kind = RowKind::mark,
                         .range = RangeKind::stack,
                         .name = stack,
                         .start_ns = now,
                         .end_ns = now,
                         .place = thread});
}

void add_amount(std::uint32_t name, std::uint16_t device, std::int64_t bytes) {
  Session* session = Session::current();
  if (session == nullptr || !session->is_on()) return;
  const std::uint64_t now = now_ns();
  session->writer().add({.kind = RowKind::mark,
                         .range = RangeKind::amount,
                         .device = device,
                         .name = name,
                         .start_ns = now,
                         .end_ns = now,
                         .place = thread_number(),
                         .bytes = bytes});
}

void add_block(std::uint16_t device, std::uint64_t address, std::int64_t bytes, std::uint64_t time_ns) {
  Session* session = Session::current();
  if (session == nullptr || !session->is_on()) return;
  const std::uint32_t name = session->writer().text(bytes > 0 ? "block taken" : "block given back");
  session->writer().add({.kind = RowKind::memory,
                         .range = RangeKind::block,
                         .device = device,
                         .name = name,
                         .start_ns = time_ns,
                         .end_ns = time_ns,
                         .place = thread_number(),
                         .bytes = bytes,
                         .other = address});
}

void add_range(std::uint32_t name, RangeKind kind, std::uint64_t start_ns, std::uint64_t end_ns) {
  Session* session = Session::current();
  if (session == nullptr || !session->is_on()) return;
  session->writer().add(row_of({.name = name, .start_ns = start_ns, .kind = kind}, RowKind::range, end_ns));
}

}  // namespace rooflm::inject
