// Where allocations of a run lie.
#include "report/export/memory_places.h"

#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rooflm::report {
namespace {

/// What is larger has no place in numbers of JavaScript.
constexpr std::int64_t kFirstAddress = std::int64_t{1} << 40U;

/// Gives addresses to what has none: the first gap that is large enough; behind all others where there are
/// many, so that no search is long.
class Places {
 public:
  std::int64_t take(std::int64_t bytes) {
    constexpr std::size_t kMany = 20'000;
    std::int64_t at = kFirstAddress;
    if (used_.size() > kMany) {
      at = std::prev(used_.end())->second;
      used_[at] = at + bytes;
      return at;
    }
    for (const auto& [begin, end] : used_) {
      if (begin - at >= bytes) break;
      at = end;
    }
    used_[at] = at + bytes;
    return at;
  }
  void give_back(std::int64_t address) { used_.erase(address); }

 private:
  std::map<std::int64_t, std::int64_t> used_;  ///< address, end
};

bool is_possible_memory(const record::MemoryEvent& event) {
  constexpr std::int64_t kMost = std::int64_t{1} << 52U;
  return event.bytes > -kMost && event.bytes < kMost &&
         (!event.address || (*event.address >= 0 && *event.address < kMost));
}

/// A block of a memory event: the whole of it where the record says which.
struct Block {
  std::int64_t bytes = 0;      ///< freed: < 0
  std::int64_t piece = kNone;  ///< number among those without tensor and address
  static constexpr std::int64_t kNone = -1;
};

/// The blocks of each event without a tensor and an address: a free takes the last ones that were allocated.
class Pieces {
 public:
  explicit Pieces(const RunData& run) : blocks_(run.memory_events.size()) {
    std::map<std::string_view, std::vector<std::size_t>> live;  // of each device, the last one last
    for (std::size_t i = 0; i < run.memory_events.size(); ++i) {
      const record::MemoryEvent& event = run.memory_events[i];
      if (event.tensor || event.address || event.bytes == 0 || !is_possible_memory(event)) continue;
      std::vector<std::size_t>& stack = live[event.device];
      if (event.bytes > 0) {
        stack.push_back(add(i, event.bytes));
      } else {
        free(i, -event.bytes, stack);
      }
    }
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      blocks_[pieces_[i].allocated_by].push_back({pieces_[i].bytes, static_cast<std::int64_t>(i)});
    }
  }

  [[nodiscard]] const std::vector<Block>& of(std::size_t event) const { return blocks_[event]; }

 private:
  struct Piece {
    std::size_t allocated_by = 0;
    std::int64_t bytes = 0;
  };

  std::size_t add(std::size_t event, std::int64_t bytes) {
    pieces_.push_back({event, bytes});
    return pieces_.size() - 1;
  }

  void free(std::size_t event, std::int64_t bytes, std::vector<std::size_t>& stack) {
    while (bytes > 0 && !stack.empty()) {
      std::size_t last = stack.back();
      if (pieces_[last].bytes <= bytes) {
        stack.pop_back();
      } else {
        pieces_[last].bytes -= bytes;
        last = add(pieces_[last].allocated_by, bytes);
      }
      bytes -= pieces_[last].bytes;
      blocks_[event].push_back({-pieces_[last].bytes, static_cast<std::int64_t>(last)});
    }
    if (bytes > 0) blocks_[event].push_back({-bytes});
  }

  std::vector<Piece> pieces_;
  std::vector<std::vector<Block>> blocks_;  ///< by event
};

/// Follows the events of a run, block by block.
class Placing {
 public:
  explicit Placing(const RunData& run) : run_(run), pieces_(run), main_device_(run.setting("device")) {}

  PlacedMemory place() {
    for (std::size_t i = 0; i < run_.memory_events.size(); ++i) {
      const record::MemoryEvent& event = run_.memory_events[i];
      if (event.bytes == 0) continue;  // of a tensor that lies in the memory of another
      if (!is_possible_memory(event)) {
        ++placed_.left_out;
        continue;
      }
      const std::size_t first = placed_.changes.size();
      if (event.tensor || event.address) {
        add(event, {event.bytes});
      } else {
        for (const Block& block : pieces_.of(i)) add(event, block);
      }
      // The sum after the event is the record's.
      std::int64_t live = event.live_bytes;
      for (std::size_t change = placed_.changes.size(); change-- > first;) {
        placed_.changes[change].live_bytes = live;
        live -= placed_.changes[change].bytes;
      }
    }
    return std::move(placed_);
  }

 private:
  /// Of what has no address: tensors by their number, others by that of their piece, beyond all tensors.
  struct Key {
    std::string device;
    bool is_piece = false;
    std::int64_t number = 0;
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  void add(const record::MemoryEvent& event, const Block& block) {
    const std::string& device = event.device.empty() ? main_device_ : event.device;
    const bool is_piece = block.piece != Block::kNone;
    const Key key{device, is_piece, is_piece ? block.piece : event.tensor.value_or(Block::kNone)};
    std::optional<std::int64_t> address = event.address;
    if (block.bytes > 0) {
      if (!address) {
        address = places_[device].take(block.bytes);
        of_key_[key] = *address;
      }
      sizes_[{device, *address}] = block.bytes;
      placed_.changes.push_back({&event, device, *address, block.bytes});
      return;
    }
    if (!address) {
      const auto taken = of_key_.find(key);
      if (taken != of_key_.end()) {
        address = taken->second;
        of_key_.erase(taken);
        places_[device].give_back(*address);
      }
    }
    const auto size = address ? sizes_.find({device, *address}) : sizes_.end();
    if (size == sizes_.end()) {
      ++placed_.left_out;
      return;
    }
    placed_.changes.push_back({&event, device, *address, -size->second});
    sizes_.erase(size);
  }

  const RunData& run_;
  Pieces pieces_;
  std::string main_device_;
  std::map<std::string, Places> places_;
  std::map<Key, std::int64_t> of_key_;                                  ///< address
  std::map<std::pair<std::string, std::int64_t>, std::int64_t> sizes_;  ///< of what is allocated there
  PlacedMemory placed_;
};

}  // namespace

PlacedMemory placed_memory(const RunData& run) { return Placing(run).place(); }

}  // namespace rooflm::report
