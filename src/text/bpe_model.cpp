// Builds the lookup tables of a vocabulary and checks that it is complete.
#include "text/bpe_model.h"

#include <fmt/format.h>

#include <bit>

#include "core/error.h"
#include "core/printable.h"
#include "text/bpe_utf8.h"

namespace rooflm::text {
namespace {

/// Bytes of no UTF-8 text (RFC 3629). Vocabularies learned from text may lack them.
constexpr bool is_never_in_utf8(unsigned byte) { return byte == 0xC0 || byte == 0xC1 || byte >= 0xF5; }

}  // namespace

MergeTable::MergeTable(std::size_t merges) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(16, 2 * merges));
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(size));
}

void MergeTable::add(std::uint32_t left, std::uint32_t right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  std::size_t slot = slot_of(key);
  while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & mask_;
  if (slots_[slot].key == kEmpty) slots_[slot] = {key, merge};
}

void BpeModel::index(const std::string& where) {
  std::vector<bool> is_added(tokens.size());
  for (const auto& token : added) is_added[token.id] = true;
  std::unordered_map<std::string_view, std::uint32_t> ids;
  ids.reserve(tokens.size());
  for (std::uint32_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty() && !is_added[id]) ids.emplace(tokens[id], id);
  }
  for (unsigned byte = 0; byte < byte_ids.size(); ++byte) {
    const std::string text(1, static_cast<char>(byte));
    const auto found = ids.find(text);
    if (found == ids.end() && !is_never_in_utf8(byte)) {
      throw core::InputError(fmt::format(
          "{}: vocabulary has no token for byte 0x{:02x} ('{}'); a byte-level BPE has all that UTF-8 uses",
          where, byte, spell_bytes(text)));
    }
    byte_ids[byte] = found == ids.end() ? kNoToken : found->second;
  }
  // Millions of merges of tokens of megabytes would take hours to look up.
  constexpr std::size_t kMostJoinedBytes = std::size_t{1} << 30U;
  std::size_t joined_bytes = 0;
  merge_table = MergeTable(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = merges[rank];
    joined_bytes += tokens[left].size() + tokens[right].size();
    if (joined_bytes > kMostJoinedBytes) {
      throw core::InputError(
          fmt::format("{}: the tokens that {} merges make have more than {} bytes together", where, rank + 1,
                      kMostJoinedBytes));
    }
    const auto found = ids.find(tokens[left] + tokens[right]);
    if (found == ids.end()) {
      throw core::InputError(fmt::format("{}: merge {} ('{}' + '{}') makes no token of the vocabulary", where,
                                         rank, core::printable(spell_bytes(tokens[left])),
                                         core::printable(spell_bytes(tokens[right]))));
    }
    merge_table.add(left, right, {static_cast<std::uint32_t>(rank), found->second});
  }
  if (ignore_merges) whole_words = std::move(ids);
  for (const auto& token : added) {
    if (token.name == "<|endoftext|>" || (!eot && token.name == "<|end_of_text|>")) eot = token.id;
  }
}

}  // namespace rooflm::text
