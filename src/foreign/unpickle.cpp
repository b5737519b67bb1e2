// Python's pickle, as far as it is data.
#include "foreign/unpickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

#include "core/error.h"

namespace rooflm::foreign {
namespace {

using Kind = PickleRef::Kind;

/// Opcodes that are no data, and what they would do.
constexpr std::pair<char, std::string_view> kRefused[] = {{'c', "GLOBAL, which imports"},
                                                          {'\x93', "STACK_GLOBAL, which imports"},
                                                          {'R', "REDUCE, which calls"},
                                                          {'b', "BUILD, which sets state"},
                                                          {'i', "INST, which builds an object"},
                                                          {'o', "OBJ, which builds an object"},
                                                          {'\x81', "NEWOBJ, which builds an object"},
                                                          {'\x92', "NEWOBJ_EX, which builds an object"},
                                                          {'P', "PERSID, which asks elsewhere"},
                                                          {'Q', "BINPERSID, which asks elsewhere"},
                                                          {'\x82', "EXT1, which imports"},
                                                          {'\x83', "EXT2, which imports"},
                                                          {'\x84', "EXT4, which imports"}};

PickleRef make(Kind kind, std::int64_t value) {
  PickleRef ref;
  ref.kind = kind;
  ref.integer = value;
  return ref;
}

PickleRef make_place(Kind kind, std::size_t place) {
  PickleRef ref;
  ref.kind = kind;
  ref.place = place;
  return ref;
}

}  // namespace

class Unpickler {
 public:
  Unpickler(Pickle& pickle, std::string_view bytes, const std::string& where)
      : pickle_(pickle), bytes_(bytes), where_(where) {}

  void run() {
    while (true) {
      const char opcode = take(1)[0];
      if (opcode == '.') break;
      if (!scalar(opcode) && !container(opcode) && !memo(opcode)) refuse(opcode);
    }
    pickle_.root_ = pop();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw core::InputError(fmt::format("{}: the pickle is damaged at byte {}: {}", where_, at_, what));
  }
  [[noreturn]] void refuse(char opcode) const {
    const auto* const known = std::ranges::find(kRefused, opcode, &std::pair<char, std::string_view>::first);
    throw core::InputError(fmt::format(
        "{}: the pickle has the opcode 0x{:02x} ({}) at byte {}: only data are read, nothing is executed",
        where_, static_cast<unsigned char>(opcode),
        known == std::end(kRefused) ? "not one of those that snapshots are made of" : known->second,
        at_ - 1));
  }

  std::string_view take(std::size_t count) {
    if (count > bytes_.size() - at_) fail(fmt::format("it ends early ({} bytes in all)", bytes_.size()));
    const std::string_view part = bytes_.substr(at_, count);
    at_ += count;
    return part;
  }
  std::uint64_t little(std::size_t count) {
    const std::string_view part = take(count);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i)
      value |= std::uint64_t{static_cast<unsigned char>(part[i])} << 8 * i;
    return value;
  }
  std::size_t size_of(std::size_t count) {
    const std::uint64_t value = little(count);
    if (value > bytes_.size()) fail(fmt::format("something of {} bytes", value));
    return static_cast<std::size_t>(value);
  }

  void push(PickleRef ref) { stack_.push_back(ref); }
  PickleRef pop() {
    const std::size_t bottom = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= bottom) fail("a value is missing");
    const PickleRef ref = stack_.back();
    stack_.pop_back();
    return ref;
  }
  /// What was pushed since the last mark, which goes.
  std::vector<PickleRef> pop_to_mark() {
    if (marks_.empty()) fail("a mark is missing");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleRef> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  void push_container(Kind kind, std::vector<PickleRef> items) {
    pickle_.containers_.push_back(std::move(items));
    push(make_place(kind, pickle_.containers_.size() - 1));
  }
  std::vector<PickleRef>& top(Kind kind) {
    const std::size_t bottom = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= bottom || stack_.back().kind != kind) fail("items without a list or dictionary");
    return pickle_.containers_[stack_.back().place];
  }
  void extend(Kind kind, const std::vector<PickleRef>& items) {
    if (kind == Kind::dictionary && items.size() % 2 != 0) fail("a key without a value");
    std::vector<PickleRef>& target = top(kind);
    target.insert(target.end(), items.begin(), items.end());
  }

  void push_text(std::size_t bytes) {
    pickle_.texts_.push_back(take(bytes));
    push(make_place(Kind::text, pickle_.texts_.size() - 1));
  }
  /// Two's complement, little-endian; what has more than 8 bytes is no number of a snapshot, and nothing.
  void push_long(std::size_t bytes) {
    if (bytes > 8) {
      take(bytes);
      return push(PickleRef{});
    }
    std::uint64_t value = little(bytes);
    if (bytes > 0 && bytes < 8 && (value >> (8 * bytes - 1) & 1U) != 0)
      value |= ~std::uint64_t{0} << 8 * bytes;
    push(make(Kind::integer, static_cast<std::int64_t>(value)));
  }
  void push_number() {
    std::uint64_t bits = 0;
    for (const char c : take(8)) bits = bits << 8U | static_cast<unsigned char>(c);
    PickleRef ref;
    ref.kind = Kind::number;
    ref.number = std::bit_cast<double>(bits);
    push(ref);
  }

  bool scalar(char opcode) {
    switch (opcode) {
      case '\x80':
        if (const std::uint64_t protocol = little(1); protocol < 2 || protocol > 5) {
          fail(fmt::format("protocol {}, but 2 to 5 are read", protocol));
        }
        return true;
      case '\x95':  // FRAME
        little(8);
        return true;
      case 'N':
        return push(PickleRef{}), true;
      case '\x88':
        return push(make(Kind::boolean, 1)), true;
      case '\x89':
        return push(make(Kind::boolean, 0)), true;
      case 'J':
        return push(make(Kind::integer, static_cast<std::int32_t>(little(4)))), true;
      case 'K':
        return push(make(Kind::integer, static_cast<std::int64_t>(little(1)))), true;
      case 'M':
        return push(make(Kind::integer, static_cast<std::int64_t>(little(2)))), true;
      case '\x8a':
        return push_long(size_of(1)), true;
      case '\x8b':
        return push_long(size_of(4)), true;
      case 'G':
        return push_number(), true;
      case '\x8c':
        return push_text(size_of(1)), true;
      case 'X':
        return push_text(size_of(4)), true;
      case '\x8d':
        return push_text(size_of(8)), true;
      default:
        return false;
    }
  }

  bool container(char opcode) {
    switch (opcode) {
      case ']':
      case ')':
        return push_container(Kind::list, {}), true;
      case '}':
        return push_container(Kind::dictionary, {}), true;
      case '(':
        return marks_.push_back(stack_.size()), true;
      case 'l':
      case 't':
        return push_container(Kind::list, pop_to_mark()), true;
      case 'd': {
        std::vector<PickleRef> items = pop_to_mark();
        if (items.size() % 2 != 0) fail("a key without a value");
        return push_container(Kind::dictionary, std::move(items)), true;
      }
      case '\x85':
      case '\x86':
      case '\x87': {
        std::vector<PickleRef> items(static_cast<std::size_t>(static_cast<unsigned char>(opcode) - 0x84));
        for (PickleRef& item : items) item = pop();
        std::ranges::reverse(items);
        return push_container(Kind::list, std::move(items)), true;
      }
      case 'a': {
        const PickleRef item = pop();
        return extend(Kind::list, {item}), true;
      }
      case 's': {
        const PickleRef value = pop();
        const PickleRef key = pop();
        return extend(Kind::dictionary, {key, value}), true;
      }
      case 'e': {
        const std::vector<PickleRef> items = pop_to_mark();
        return extend(Kind::list, items), true;
      }
      case 'u': {
        const std::vector<PickleRef> items = pop_to_mark();
        return extend(Kind::dictionary, items), true;
      }
      default:
        return false;
    }
  }

  bool memo(char opcode) {
    switch (opcode) {
      case 'q':
        return memo_[little(1)] = peek(), true;
      case 'r':
        return memo_[little(4)] = peek(), true;
      case '\x94':
        return memo_[memo_.size()] = peek(), true;
      case 'h':
        return recall(little(1)), true;
      case 'j':
        return recall(little(4)), true;
      default:
        return false;
    }
  }
  [[nodiscard]] PickleRef peek() const {
    if (stack_.empty()) fail("nothing to remember");
    return stack_.back();
  }
  void recall(std::uint64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) fail(fmt::format("value {} was not remembered", number));
    push(found->second);
  }

  Pickle& pickle_;
  std::string_view bytes_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::vector<PickleRef> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, PickleRef> memo_;
};

Pickle::Pickle(std::string_view bytes, const std::string& where) { Unpickler(*this, bytes, where).run(); }

std::string_view Pickle::text(PickleRef ref) const {
  return ref.kind == Kind::text ? texts_[ref.place] : std::string_view();
}

const std::vector<PickleRef>& Pickle::items(PickleRef ref) const {
  static const std::vector<PickleRef> kNothing;
  return ref.kind == Kind::list || ref.kind == Kind::dictionary ? containers_[ref.place] : kNothing;
}

std::optional<PickleRef> Pickle::find(PickleRef ref, std::string_view key) const {
  if (ref.kind != Kind::dictionary) return std::nullopt;
  const std::vector<PickleRef>& all = items(ref);
  for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
    if (all[i].kind == Kind::text && text(all[i]) == key) return all[i + 1];
  }
  return std::nullopt;
}

std::optional<std::int64_t> Pickle::integer(PickleRef ref, std::string_view key) const {
  const auto value = find(ref, key);
  if (!value || (value->kind != Kind::integer && value->kind != Kind::boolean)) return std::nullopt;
  return value->integer;
}

std::string_view Pickle::text(PickleRef ref, std::string_view key) const {
  const auto value = find(ref, key);
  return value ? text(*value) : std::string_view();
}

}  // namespace rooflm::foreign
