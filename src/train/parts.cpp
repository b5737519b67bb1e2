// Gathers whole tensors from the parts on ranks. The first rank sends the name of a tensor to all; each
// answers with runs of elements, where they begin in the whole and how many there are, and their values.
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
constexpr std::uint64_t kGoOn = 0;
/// The others wait that much longer for the first than it for them.
constexpr double kLongerSeconds = 1;

/// What one rank has of a tensor.
struct Parts {
  std::vector<Run> runs;
  std::vector<float> values;
};

void send_word(ranks::Transport& ranks, int to, std::uint64_t word) {
  ranks.send(to, ranks::kParts, std::as_bytes(std::span(&word, 1)));
}

/// From the first.
void send_to_others(ranks::Transport& ranks, std::uint64_t word) {
  for (int other = 1; other < ranks.size(); ++other) send_word(ranks, other, word);
}

std::uint64_t receive_word(ranks::Transport& ranks, int from) {
  std::uint64_t word = 0;
  const ranks::Incoming incoming{from, std::as_writable_bytes(std::span(&word, 1))};
  ranks.exchange(ranks::kParts, {}, {&incoming, 1});
  return word;
}

void send_sized(ranks::Transport& ranks, int to, std::span<const std::byte> bytes) {
  send_word(ranks, to, bytes.size());
  if (!bytes.empty()) ranks.send(to, ranks::kParts, bytes);
}

template <class T>
std::vector<T> receive_sized(ranks::Transport& ranks, int from) {
  std::uint64_t size = kKeepWaiting;
  while (size == kKeepWaiting) size = receive_word(ranks, from);
  std::vector<T> items(size / sizeof(T));
  const ranks::Incoming rest{from, std::as_writable_bytes(std::span(items))};
  ranks.exchange(ranks::kParts, {}, {&rest, 1});
  return items;
}

/// Of what several ranks have alike the first of them tells.
bool is_told_by(const program::Coordinates& rank, const program::Tensor& tensor) {
  int parts = 1;  // of a group within the data-parallel ranks, of which the first has them all
  for (const program::Shard& shard : tensor.shards) {
    if (shard.group == Group::expert) parts = shard.parts;
  }
  return (rank.data < parts || program::is_split(tensor, Group::data)) &&
         (rank.tensor == 0 || program::is_split(tensor, Group::tensor));
}

Parts parts_of(const engines::TensorStore& store, const program::Coordinates& rank, const std::string& name) {
  Parts parts{.runs = runs_of(store, rank, name), .values = {}};
  if (!parts.runs.empty()) parts.values = store.read<float>(name);
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
    ranks.look();
    if (!ranks.is_first()) return send_word(ranks, 0, kKeepWaiting);
    send_to_others(ranks, kKeepWaiting);
  };
}

std::vector<std::uint64_t> collect(ranks::Transport& ranks, std::uint64_t own) {
  if (!ranks.is_first()) {
    send_word(ranks, 0, kGoOn);
    send_word(ranks, 0, own);
    return {};
  }
  std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks.size()), own);
  std::vector<int> open;
  for (int other = 1; other < ranks.size(); ++other) open.push_back(other);
  // One word of each in turn, so that one that hangs is found while others go on.
  while (!open.empty()) {
    send_to_others(ranks, kKeepWaiting);
    std::erase_if(open, [&](int other) {
      if (receive_word(ranks, other) == kKeepWaiting) return false;
      all[static_cast<std::size_t>(other)] = receive_word(ranks, other);
      return true;
    });
  }
  return all;
}

void release(ranks::Transport& ranks) { send_to_others(ranks, kGoOn); }

void wait_for_release(ranks::Transport& ranks) {
  const ranks::Patience patience(&ranks, ranks.patience_s() + kLongerSeconds);
  while (receive_word(ranks, 0) == kKeepWaiting) continue;
}

std::vector<Run> runs_of(const engines::TensorStore& store, const program::Coordinates& rank,
                         const std::string& name) {
  std::vector<Run> runs;
  const auto found = store.entries().find(name);
  if (found == store.entries().end() || !is_told_by(rank, found->second.tensor)) return runs;
  for (const std::int64_t element : program::elements_of(found->second.tensor)) {
    const bool goes_on = !runs.empty() && runs.back().begin + runs.back().count == element;
    if (goes_on) {
      ++runs.back().count;
    } else {
      runs.push_back({.begin = element, .count = 1});
    }
  }
  return runs;
}

}  // namespace rooflm::train
