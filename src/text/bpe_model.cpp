// Builds the lookup tables of a vocabulary and checks that it is complete.
#include "text/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
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
  // Added tokens of BPE over characters may be what a merge makes: Gemma's "\n\n".
  const std::vector<std::string>& names = characters ? spellings : tokens;
  std::unordered_map<std::string_view, std::uint32_t> ids;
  ids.reserve(names.size());
  for (std::uint32_t id = 0; id < names.size(); ++id) {
    if (!names[id].empty() && (characters || !is_added[id])) ids.emplace(names[id], id);
  }
  for (unsigned byte = 0; byte < byte_ids.size(); ++byte) {
    const std::string text =
        characters ? fmt::format("<0x{:02X}>", byte) : std::string(1, static_cast<char>(byte));
    const auto found = ids.find(text);
    if (found == ids.end() && (characters || !is_never_in_utf8(byte))) {
      throw core::InputError(fmt::format(
          "{}: vocabulary has no token for byte 0x{:02x} ('{}'); {}", where, byte,
          characters ? text : spell_bytes(text),
          characters ? "with byte fallback all have one" : "a byte-level BPE has all that UTF-8 uses"));
    }
    byte_ids[byte] = found == ids.end() ? kNoToken : found->second;
  }
  for (const auto& [name, id] : ids) {
    if (characters && name.size() == utf8_length(static_cast<unsigned char>(name[0])))
      character_ids.emplace(name, id);
  }
  // Millions of merges of tokens of megabytes would take hours to look up.
  constexpr std::size_t kMostJoinedBytes = std::size_t{1} << 30U;
  std::size_t joined_bytes = 0;
  merge_table = MergeTable(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = merges[rank];
    joined_bytes += names[left].size() + names[right].size();
    if (joined_bytes > kMostJoinedBytes) {
      throw core::InputError(
          fmt::format("{}: the tokens that {} merges make have more than {} bytes together", where, rank + 1,
                      kMostJoinedBytes));
    }
    const auto found = ids.find(names[left] + names[right]);
    if (found == ids.end()) {
      throw core::InputError(
          fmt::format("{}: merge {} ('{}' + '{}') makes no token of the vocabulary", where, rank,
                      core::printable(characters ? names[left] : spell_bytes(names[left])),
                      core::printable(characters ? names[right] : spell_bytes(names[right]))));
    }
    merge_table.add(left, right, {static_cast<std::uint32_t>(rank), found->second});
  }
  if (ignore_merges) whole_words = std::move(ids);
  for (const std::string_view end : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
    const auto found = std::ranges::find(added, end, &AddedToken::name);
    if (found == added.end()) continue;
    eot = found->id;
    break;
  }
}

}  // namespace rooflm::text
