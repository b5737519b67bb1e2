// The blocks of an allocator in one step, as tensors.
#include "foreign/block_tensors.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string_view>

namespace rooflm::foreign {
namespace {

constexpr std::int64_t kBefore = -1;  ///< op of what was there before the step

/// A block from when it is taken until it is given back.
struct Block {
  std::string device{};
  std::int64_t address = 0, bytes = 0;
  std::optional<std::int64_t> taken_by{}, given_by{};
  bool was_before = false, is_over = false;
};

/// The first owner whose memory lies in the block: several tensors may share one.
const BlockOwner* owner_of(const BlockOwners::Places& owners, const Block& block) {
  const auto found = owners.lower_bound({block.device, block.address});
  const bool is_inside = found != owners.end() && found->first.first == block.device &&
                         found->first.second - block.address < block.bytes;
  return is_inside ? &found->second : nullptr;
}

class Namer {
 public:
  Namer(const std::vector<record::Op>& ops, const BlockOwners& owners) : ops_(ops), owners_(owners) {}

  record::Tensor tensor_of(std::int64_t number, const Block& block) const {
    record::Tensor tensor{.tensor = number, .bytes = block.bytes};
    tensor.first_op = block.was_before ? kBefore : block.taken_by.value_or(kBefore);
    if (block.is_over) {
      tensor.last_op = block.given_by.value_or(tensor.first_op);
    } else if (!block.was_before) {
      tensor.last_op = static_cast<std::int64_t>(ops_.size()) - 1;
    }
    const BlockOwner* owner = owner_of(block.is_over ? owners_.at_begin : owners_.at_end, block);
    if (owner != nullptr && (block.was_before || !block.is_over)) {
      tensor.role = owner->role;
      tensor.name = owner->name;
      return tensor;
    }
    tensor.role = role_of(block);
    const record::Op* maker = block.was_before ? nullptr : op_of(block.taken_by);
    tensor.name = maker == nullptr ? tensor.role : fmt::format("{} ({})", maker->name, maker->phase);
    return tensor;
  }

 private:
  [[nodiscard]] const record::Op* op_of(std::optional<std::int64_t> op) const {
    return !op || *op < 0 || *op >= static_cast<std::int64_t>(ops_.size())
               ? nullptr
               : &ops_[static_cast<std::size_t>(*op)];
  }

  [[nodiscard]] const char* role_of(const Block& block) const {
    const record::Op* maker = op_of(block.taken_by);
    if (block.was_before || maker == nullptr) return "other";
    const std::string_view phase = maker->phase;
    const bool is_short = block.is_over && block.given_by == block.taken_by;
    if (is_short || (phase != "forward" && phase != "backward")) return "workspace";
    return phase == "forward" ? "activation" : "activation_gradient";
  }

  const std::vector<record::Op>& ops_;
  const BlockOwners& owners_;
};

}  // namespace

std::vector<record::Tensor> name_blocks(std::vector<record::MemoryEvent>& events,
                                        const std::vector<record::Op>& ops, const BlockOwners& owners) {
  std::vector<Block> blocks;
  std::map<std::pair<std::string, std::int64_t>, std::size_t> open;
  for (record::MemoryEvent& event : events) {
    if (!event.address) continue;
    const std::pair place{event.device, *event.address};
    const auto found = open.find(place);
    if (event.bytes > 0) {
      open[place] = blocks.size();
      event.tensor = static_cast<std::int64_t>(blocks.size());
      blocks.push_back({.device = event.device,
                        .address = *event.address,
                        .bytes = event.bytes,
                        .taken_by = event.op,
                        .was_before = event.op == kBefore});
    } else if (found != open.end()) {
      Block& block = blocks[found->second];
      event.tensor = static_cast<std::int64_t>(found->second);
      block.given_by = event.op;
      block.is_over = true;
      open.erase(found);
    }
  }
  const Namer namer(ops, owners);
  std::vector<record::Tensor> tensors;
  tensors.reserve(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    tensors.push_back(namer.tensor_of(static_cast<std::int64_t>(i), blocks[i]));
  }
  return tensors;
}

}  // namespace rooflm::foreign
