// Whole tensors from the parts that ranks have of them. The first rank sends the name of a tensor to all;
// each answers with runs of elements, where they begin in the whole and how many there are, and their values.
// While it writes what it has it sends kKeepWaiting in the place of a name's length.
#include "train/parts.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace rooflm::train {
namespace {

using program::Group;

constexpr std::uint64_t kKeepWaiting = ~std::uint64_t{0};

struct Run {
  std::int64_t begin = 0, count = 0;
};

/// What one rank has of a tensor.
struct Parts {
  std::vector<Run> runs;
  std::vector<float> values;
};

void send_sized(ranks::Transport& ranks, int to, std::span<const std::byte> bytes) {
  const std::uint64_t size = bytes.size();
  ranks.send(to, ranks::kParts, std::as_bytes(std::span(&size, 1)));
  if (size > 0) ranks.send(to, ranks::kParts, bytes);
}

template <class T>
std::vector<T> receive_sized(ranks::Transport& ranks, int from) {
  std::uint64_t size = kKeepWaiting;
  const ranks::Incoming first{from, std::as_writable_bytes(std::span(&size, 1))};
  while (size == kKeepWaiting) ranks.exchange(ranks::kParts, {}, {&first, 1});
  std::vector<T> items(size / sizeof(T));
  const ranks::Incoming rest{from, std::as_writable_bytes(std::span(items))};
  ranks.exchange(ranks::kParts, {}, {&rest, 1});
  return items;
}

/// Of what several ranks have alike the first of them tells.
bool is_told_by(const program::Coordinates& rank, const program::Tensor& tensor) {
  return (rank.data == 0 || program::is_split(tensor, Group::data)) &&
         (rank.tensor == 0 || program::is_split(tensor, Group::tensor));
}

Parts parts_of(const engines::TensorStore& store, const program::Coordinates& rank, const std::string& name) {
  Parts parts;
  const auto found = store.entries().find(name);
  if (found == store.entries().end() || !is_told_by(rank, found->second.tensor)) return parts;
  parts.values = store.read<float>(name);
  for (const std::int64_t element : program::elements_of(found->second.tensor)) {
    const bool goes_on = !parts.runs.empty() && parts.runs.back().begin + parts.runs.back().count == element;
    if (goes_on) {
      ++parts.runs.back().count;
    } else {
      parts.runs.push_back({.begin = element, .count = 1});
    }
  }
  return parts;
}

/// Writes them to their places; how many elements those were.
std::int64_t put(const Parts& parts, std::span<float> whole) {
  std::size_t done = 0;
  for (const Run& run : parts.runs) {
    const auto count = static_cast<std::size_t>(run.count);
    const std::span from = std::span(parts.values).subspan(done, count);
    const std::span to = whole.subspan(static_cast<std::size_t>(run.begin), count);
    std::memcpy(to.data(), from.data(), from.size_bytes());
    done += count;
  }
  return static_cast<std::int64_t>(done);
}

}  // namespace

void gather_parts(ranks::Transport& ranks, const engines::TensorStore& store,
                  const program::Coordinates& rank, const std::string& name, std::span<float> whole) {
  ranks.set_op(fmt::format("gathering {} for a checkpoint", name));
  for (int other = 1; other < ranks.size(); ++other) send_sized(ranks, other, std::as_bytes(std::span(name)));
  std::int64_t known = put(parts_of(store, rank, name), whole);
  for (int other = 1; other < ranks.size(); ++other) {
    Parts parts;
    parts.runs = receive_sized<Run>(ranks, other);
    parts.values = receive_sized<float>(ranks, other);
    known += put(parts, whole);
  }
  // A tied weight comes from two stages.
  if (known < static_cast<std::int64_t>(whole.size()))
    throw std::logic_error(fmt::format("of {} elements of {} ranks have {}", whole.size(), name, known));
}

void end_gathering(ranks::Transport& ranks) {
  for (int other = 1; other < ranks.size(); ++other) send_sized(ranks, other, {});
}

void serve_parts(ranks::Transport& ranks, const engines::TensorStore& store,
                 const program::Coordinates& rank) {
  constexpr double kLongerSeconds = 1;
  const ranks::Patience patience(&ranks, ranks.patience_s() + kLongerSeconds);
  ranks.set_op("waiting for the checkpoint");
  while (true) {
    const std::vector<char> name = receive_sized<char>(ranks, 0);
    if (name.empty()) return;
    const Parts parts = parts_of(store, rank, {name.begin(), name.end()});
    send_sized(ranks, 0, std::as_bytes(std::span(parts.runs)));
    send_sized(ranks, 0, std::as_bytes(std::span(parts.values)));
  }
}

core::OnProgress make_keep_waiting(ranks::Transport& ranks) {
  using Clock = std::chrono::steady_clock;
  constexpr double kTimes = 8;
  const std::chrono::duration<double> pause(ranks.patience_s() / kTimes);
  return [&ranks, pause, last = Clock::now()]() mutable {
    if (Clock::now() - last < pause) return;
    last = Clock::now();
    ranks.set_op("writing the checkpoint");
    ranks.look();
    for (int other = 1; other < ranks.size(); ++other)
      ranks.send(other, ranks::kParts, std::as_bytes(std::span(&kKeepWaiting, 1)));
  };
}

}  // namespace rooflm::train
