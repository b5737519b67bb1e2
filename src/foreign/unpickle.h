// Python's pickle, as far as it is data: numbers, texts, lists, tuples and dictionaries. Nothing is ever
// executed: opcodes that import, build or call something are refused by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::foreign {

/// A value, or where one is kept: small, so that a million of them cost little.
struct PickleRef {
  enum class Kind : std::uint8_t { none, boolean, integer, number, text, list, dictionary };
  Kind kind = Kind::none;
  union {
    std::int64_t integer = 0;  ///< of booleans too
    double number;
    std::size_t place;  ///< of a text, list or dictionary
  };
};

/// The values of one pickle. Lists may hold themselves and each other: whoever walks them counts.
class Pickle {
 public:
  /// Protocols 2 to 5. Throws core::InputError that names `where`, the byte and the opcode for everything
  /// that is no data, and for what is cut off or damaged.
  Pickle(std::string_view bytes, const std::string& where);

  [[nodiscard]] PickleRef root() const { return root_; }
  [[nodiscard]] std::string_view text(PickleRef ref) const;  ///< "" of what is none
  /// Items of a list or tuple; of a dictionary keys and values in turn. Empty for everything else.
  [[nodiscard]] const std::vector<PickleRef>& items(PickleRef ref) const;
  /// The value of that key of a dictionary.
  [[nodiscard]] std::optional<PickleRef> find(PickleRef ref, std::string_view key) const;
  [[nodiscard]] std::optional<std::int64_t> integer(PickleRef ref, std::string_view key) const;
  [[nodiscard]] std::string_view text(PickleRef ref, std::string_view key) const;

 private:
  friend class Unpickler;
  std::vector<std::string_view> texts_;  ///< within the bytes, which must stay
  std::vector<std::vector<PickleRef>> containers_;
  PickleRef root_{};
};

}  // namespace rooflm::foreign
