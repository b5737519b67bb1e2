// Which tokens of a sequence a context-parallel rank has. A sequence is cut into 2 * parts equal pieces; rank
// i has pieces i and 2 * parts - 1 - i ("zigzag"), so all ranks have equally many scores below the diagonal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "program/attributes.h"

namespace rooflm::program {

/// The pieces of one rank; the whole sequence if parts is 1.
struct Pieces {
  std::int64_t parts = 1, index = 0;

  /// From the op attributes `parts` and `index`; the whole sequence if they are absent.
  static Pieces of(const Attributes& attrs) {
    if (!attrs.has("parts")) return {};
    return {.parts = attrs.integer("parts"), .index = attrs.integer("index")};
  }
  void write_to(Attributes& attrs) const {
    attrs.set("parts", parts);
    attrs.set("index", index);
  }
  /// Position in the sequence of the rank's token t, 0 <= t < own, where `own` is its number of tokens.
  [[nodiscard]] std::int64_t position(std::int64_t t, std::int64_t own) const {
    const std::int64_t piece = own / 2;
    return t < piece ? index * piece + t : (2 * parts - 1 - index) * piece + t - piece;
  }
  /// Selects the rank's tokens from consecutive whole sequences of `seq` tokens.
  template <class T>
  [[nodiscard]] std::vector<T> cut(std::span<const T> sequences, std::int64_t seq) const {
    const std::int64_t own = seq / parts;
    std::vector<T> tokens;
    tokens.reserve(sequences.size() / static_cast<std::size_t>(parts));
    for (std::size_t first = 0; first < sequences.size(); first += static_cast<std::size_t>(seq)) {
      for (std::int64_t t = 0; t < own; ++t)
        tokens.push_back(sequences[first + static_cast<std::size_t>(position(t, own))]);
    }
    return tokens;
  }
};

/// Which keys of another rank the queries of this rank see, `own` tokens each. Queries from `first_query` on
/// see the first `keys` keys. With `causal` (the rank's own keys) query t sees keys 0..t.
struct SeenKeys {
  std::int64_t first_query = 0, keys = 0;
  bool causal = false;

  static SeenKeys of(std::int64_t index, std::int64_t from, std::int64_t own) {
    if (from == index) return {.keys = own, .causal = true};
    // An earlier rank's first piece precedes both own pieces; its mirrored piece follows both.
    if (from < index) return {.keys = own / 2};
    return {.first_query = own / 2, .keys = own};
  }
};

}  // namespace rooflm::program
