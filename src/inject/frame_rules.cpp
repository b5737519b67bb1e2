// How to get from a frame to the one that called it.
#include "inject/frame_rules.h"

#include <vector>

#include "inject/frame_bytes.h"
#include "inject/frame_expression.h"

namespace rooflm::inject {
namespace {

using Bytes = std::span<const std::byte>;

/// What functions of a compilation have in common.
struct Common {
  std::uint64_t code_factor = 1;
  std::int64_t data_factor = 1;
  std::uint8_t encoding = 0;
  bool has_size = false, is_signal = false;
  Bytes program{};
};

struct Function {
  Common common{};
  std::uintptr_t begin = 0, end = 0;
  Bytes program{};
};

Common read_common(const FrameTables& tables, std::uintptr_t address) {
  FrameBytes bytes(tables.bytes, address);
  bytes.limit(bytes.number<std::uint32_t>());
  Common common;
  bytes.number<std::uint32_t>();
  const auto version = bytes.number<std::uint8_t>();
  const std::string_view letters = bytes.text();
  common.code_factor = bytes.unsigned_leb();
  common.data_factor = bytes.signed_leb();
  if (version == 1) {
    bytes.number<std::uint8_t>();
  } else {
    bytes.unsigned_leb();
  }
  for (const char letter : letters) {
    if (letter == 'z') {
      bytes.unsigned_leb();
      common.has_size = true;
    } else if (letter == 'R') {
      common.encoding = bytes.number<std::uint8_t>();
    } else if (letter == 'L') {
      bytes.number<std::uint8_t>();
    } else if (letter == 'P') {
      bytes.encoded(bytes.number<std::uint8_t>());
    } else if (letter == 'S') {
      common.is_signal = true;
    }
  }
  common.program = bytes.rest();
  return common;
}

/// Where the function's entry is, from the table that the linker has sorted; 0 where there is none.
std::uintptr_t find_entry(const FrameTables& tables, std::uintptr_t address) {
  constexpr std::uint8_t kFromHere = 0x1b;    // four signed bytes, from where they stand
  constexpr std::uint8_t kFromHeader = 0x3b;  // the same, from the header
  constexpr std::uint8_t kNumber = 0x03;      // four bytes
  constexpr std::size_t kTable = 12;
  constexpr std::size_t kPair = 8;
  FrameBytes header(tables.bytes, tables.header);
  const bool is_known = header.number<std::uint8_t>() == 1 && header.number<std::uint8_t>() == kFromHere &&
                        header.number<std::uint8_t>() == kNumber &&
                        header.number<std::uint8_t>() == kFromHeader;
  if (!is_known) return 0;
  header.number<std::uint32_t>();
  const auto number_at = [&](std::size_t place) {
    FrameBytes bytes(tables.bytes, tables.header + kTable + place);
    return tables.header +
           static_cast<std::uintptr_t>(static_cast<std::intptr_t>(bytes.number<std::int32_t>()));
  };
  std::size_t first = 0;
  std::size_t last = header.number<std::uint32_t>();
  while (first < last) {  // the first one that begins later
    const std::size_t middle = first + (last - first) / 2;
    if (number_at(middle * kPair) <= address) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first == 0 ? 0 : number_at((first - 1) * kPair + sizeof(std::int32_t));
}

std::optional<Function> find_function(const FrameTables& tables, std::uintptr_t address) {
  const std::uintptr_t entry = find_entry(tables, address);
  if (entry == 0) return std::nullopt;
  FrameBytes bytes(tables.bytes, entry);
  bytes.limit(bytes.number<std::uint32_t>());
  const std::uintptr_t place = bytes.address();
  Function function;
  function.common = read_common(tables, place - bytes.number<std::uint32_t>());
  constexpr std::uint8_t kFormat = 0x0f;
  function.begin = bytes.encoded(function.common.encoding);
  function.end = function.begin + bytes.encoded(function.common.encoding & kFormat);
  if (function.common.has_size) bytes.skip(bytes.unsigned_leb());
  function.program = bytes.rest();
  if (address < function.begin || address >= function.end) return std::nullopt;
  return function;
}

/// Runs the small programs that say how rules change along a function.
class RuleProgram {
 public:
  RuleProgram(const Common& common, std::uintptr_t begin, std::uintptr_t address)
      : common_(common), place_(begin), address_(address) {}

  void run(Bytes program) {
    FrameBytes bytes(program);
    while (!bytes.is_at_end() && place_ <= address_) {
      const auto code = bytes.number<std::uint8_t>();
      constexpr unsigned kSmall = 0x3f;
      const std::uint8_t small = code & kSmall;
      switch (code >> 6U) {
        case 1:
          advance(small);
          break;
        case 2:
          set(small, Rule::kAt, scaled(bytes.unsigned_leb()));
          break;
        case 3:
          restore(small);
          break;
        default:
          run_long(code, bytes);
      }
    }
  }

  void keep_as_initial() { initial_ = rules_; }
  [[nodiscard]] const Rules& rules() const { return rules_; }

 private:
  void advance(std::uint64_t count) { place_ += count * common_.code_factor; }
  [[nodiscard]] std::int64_t scaled(std::uint64_t number) const {
    return static_cast<std::int64_t>(number) * common_.data_factor;
  }
  void set(std::uint64_t number, Rule::Kind kind, std::int64_t offset = 0, Bytes expression = {}) {
    if (number < kRegisters)
      rules_.registers.at(number) = {.kind = kind, .offset = offset, .expression = expression};
  }
  void restore(std::uint64_t number) {
    if (number < kRegisters) rules_.registers.at(number) = initial_.registers.at(number);
  }
  void set_base(std::uint64_t number, std::int64_t offset) {
    rules_.base = number;
    rules_.offset = offset;
    rules_.expression = {};
  }

  /// Numbers are those of DWARF's DW_CFA_*.
  void run_long(std::uint8_t code, FrameBytes& bytes) {
    switch (code) {
      case 0x00:  // nop
        return;
      case 0x01:  // set_loc
        place_ = bytes.encoded(common_.encoding);
        return;
      case 0x02:
        return advance(bytes.number<std::uint8_t>());
      case 0x03:
        return advance(bytes.number<std::uint16_t>());
      case 0x04:
        return advance(bytes.number<std::uint32_t>());
      case 0x0a:  // remember_state
        if (kept_.size() < kMostKept) kept_.push_back(rules_);
        return;
      case 0x0b:  // restore_state
        if (!kept_.empty()) {
          rules_ = kept_.back();
          kept_.pop_back();
        }
        return;
      case 0x0e:  // def_cfa_offset
        rules_.offset = static_cast<std::int64_t>(bytes.unsigned_leb());
        return;
      case 0x0f:  // def_cfa_expression
        rules_.expression = bytes.part(bytes.unsigned_leb());
        return;
      case 0x13:  // def_cfa_offset_sf
        rules_.offset = bytes.signed_leb() * common_.data_factor;
        return;
      case 0x2e:  // GNU_args_size
        bytes.unsigned_leb();
        return;
      default:
        run_of_register(code, bytes.unsigned_leb(), bytes);
    }
  }

  void run_of_register(std::uint8_t code, std::uint64_t number, FrameBytes& bytes) {
    switch (code) {
      case 0x05:  // offset_extended
        return set(number, Rule::kAt, scaled(bytes.unsigned_leb()));
      case 0x06:  // restore_extended
        return restore(number);
      case 0x07:
        return set(number, Rule::kUndefined);
      case 0x08:
        return set(number, Rule::kSame);
      case 0x09:
        return set(number, Rule::kRegister, static_cast<std::int64_t>(bytes.unsigned_leb()));
      case 0x0c:  // def_cfa
        return set_base(number, static_cast<std::int64_t>(bytes.unsigned_leb()));
      case 0x0d:  // def_cfa_register
        return set_base(number, rules_.offset);
      case 0x10:
        return set(number, Rule::kAtExpression, 0, bytes.part(bytes.unsigned_leb()));
      case 0x11:  // offset_extended_sf
        return set(number, Rule::kAt, bytes.signed_leb() * common_.data_factor);
      case 0x12:  // def_cfa_sf
        return set_base(number, bytes.signed_leb() * common_.data_factor);
      case 0x14:  // val_offset
        return set(number, Rule::kIs, scaled(bytes.unsigned_leb()));
      case 0x15:  // val_offset_sf
        return set(number, Rule::kIs, bytes.signed_leb() * common_.data_factor);
      case 0x16:
        return set(number, Rule::kIsExpression, 0, bytes.part(bytes.unsigned_leb()));
      default:
        throw FrameProblem();
    }
  }

  static constexpr std::size_t kMostKept = 16;
  const Common& common_;
  std::uintptr_t place_, address_;
  Rules rules_, initial_;
  std::vector<Rules> kept_;
};

std::uintptr_t value_of(const std::optional<std::uintptr_t>& word) {
  if (!word) throw FrameProblem();
  return *word;
}

std::uintptr_t frame_address(const Rules& rules, const ReadWord& read_word, const Registers& registers) {
  if (!rules.expression.empty()) return evaluate(rules.expression, read_word, registers, std::nullopt);
  if (rules.base >= kRegisters) throw FrameProblem();
  return registers.at(rules.base) + static_cast<std::uintptr_t>(rules.offset);
}

std::uintptr_t register_of(const Rule& rule, std::size_t number, std::uintptr_t frame,
                           const ReadWord& read_word, const Registers& registers) {
  switch (rule.kind) {
    case Rule::kAt:
      return value_of(read_word(frame + static_cast<std::uintptr_t>(rule.offset)));
    case Rule::kIs:
      return frame + static_cast<std::uintptr_t>(rule.offset);
    case Rule::kRegister:
      return registers.at(static_cast<std::size_t>(rule.offset) % kRegisters);
    case Rule::kAtExpression:
      return value_of(read_word(evaluate(rule.expression, read_word, registers, frame)));
    case Rule::kIsExpression:
      return evaluate(rule.expression, read_word, registers, frame);
    case Rule::kUndefined:
      return 0;
    case Rule::kSame:
      break;
  }
  return number == kStackPointer ? frame : registers.at(number);
}

std::optional<Rules> rules_or_throw(const FrameTables& tables, std::uintptr_t address) {
  const std::optional<Function> function = find_function(tables, address);
  if (!function) return std::nullopt;
  RuleProgram program(function->common, function->begin, address);
  program.run(function->common.program);
  program.keep_as_initial();
  program.run(function->program);
  Rules rules = program.rules();
  rules.is_signal = function->common.is_signal;
  return rules;
}

}  // namespace

std::optional<Rules> rules_at(const FrameTables& tables, std::uintptr_t address) {
  try {
    return rules_or_throw(tables, address);
  } catch (const FrameProblem&) {
    return std::nullopt;
  }
}

std::array<std::uintptr_t, 2> function_at(const FrameTables& tables, std::uintptr_t address) {
  try {
    const std::optional<Function> function = find_function(tables, address);
    return function ? std::array{function->begin, function->end} : std::array<std::uintptr_t, 2>{};
  } catch (const FrameProblem&) {
    return {};
  }
}

Step step_out(const Rules& rules, const ReadWord& read_word, Registers& registers) {
  if (rules.registers.at(kReturnAddress).kind == Rule::kUndefined) return Step::outermost;
  try {
    const std::uintptr_t frame = frame_address(rules, read_word, registers);
    Registers callers{};
    for (std::size_t i = 0; i < kRegisters; ++i) {
      callers.at(i) = register_of(rules.registers.at(i), i, frame, read_word, registers);
    }
    registers = callers;
  } catch (const FrameProblem&) {
    return Step::unknown;
  }
  return rules.is_signal ? Step::signal : Step::called;
}

}  // namespace rooflm::inject
