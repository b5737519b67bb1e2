// From a copy of a thread's stack to the addresses of its frames.
#include "inject/unwinder.h"

#include <link.h>

#include <algorithm>
#include <bitset>
#include <cstring>

#include "inject/frame_search.h"

namespace rooflm::inject {
namespace {

constexpr std::size_t kMostFrames = 256;

/// Registers whose values are known.
using Known = std::bitset<kRegisters>;

Known known_of(const CapturedStack& stack) {
  Known known;
  if (!stack.is_waiting) return known.set();
  return known.set(kStackPointer).set(kReturnAddress);
}

/// Of the caller, once its registers were found by these rules.
Known known_after(const Rules& rules, const Known& before) {
  Known known;
  for (std::size_t i = 0; i < kRegisters; ++i) {
    const Rule& rule = rules.registers.at(i);
    const bool is_kept = rule.kind == Rule::kSame || rule.kind == Rule::kRegister;
    const std::size_t of =
        rule.kind == Rule::kRegister ? static_cast<std::size_t>(rule.offset) % kRegisters : i;
    known[i] = is_kept ? before[of] : rule.kind != Rule::kUndefined;
  }
  return known.set(kStackPointer).set(kReturnAddress);
}

}  // namespace

/// The loader's list, looked at while it holds still: what it calls may not be unloaded meanwhile.
struct LoadedFiles {
  Unwinder& unwinder;
  const CapturedStack* stack = nullptr;
  std::vector<std::uintptr_t>* addresses = nullptr;

  /// Takes the list anew where it has changed.
  static int gather(dl_phdr_info* info, std::size_t /*size*/, void* data) {
    auto& self = *static_cast<LoadedFiles*>(data);
    Unwinder& unwinder = self.unwinder;
    if (!self.is_new) {
      if (!unwinder.files_.empty() && unwinder.added_ == info->dlpi_adds &&
          unwinder.removed_ == info->dlpi_subs)
        return 1;
      self.is_new = true;
      unwinder.forget();
      unwinder.added_ = info->dlpi_adds;
      unwinder.removed_ = info->dlpi_subs;
    }
    Unwinder::File file{.begin = ~std::uintptr_t{0}};
    std::uintptr_t readable_end = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& segment =
          info->dlpi_phdr[i];  // NOLINT(cppcoreguidelines-pro-bounds-pointer-arithmetic): an array of C's
      const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
      if (segment.p_type == PT_LOAD) {
        file.begin = std::min(file.begin, begin);
        file.end = std::max(file.end, begin + segment.p_memsz);
      } else if (segment.p_type == PT_GNU_EH_FRAME) {
        file.tables.header = begin;
      }
    }
    // The segment with the tables: others may be gaps.
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& segment =
          info->dlpi_phdr[i];  // NOLINT(cppcoreguidelines-pro-bounds-pointer-arithmetic): as above
      const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
      const bool has_tables = segment.p_type == PT_LOAD && (segment.p_flags & PF_R) != 0 &&
                              file.tables.header >= begin && file.tables.header < begin + segment.p_filesz;
      if (!has_tables) continue;
      readable_end = begin + segment.p_filesz;
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader tells numbers
      file.tables.bytes = {reinterpret_cast<const std::byte*>(begin), readable_end - begin};
    }
    if (file.begin < file.end) unwinder.files_.push_back(file);
    return 0;
  }

  static int walk(dl_phdr_info* info, std::size_t /*size*/, void* data) {
    const auto& self = *static_cast<LoadedFiles*>(data);
    const bool holds = self.unwinder.added_ == info->dlpi_adds && self.unwinder.removed_ == info->dlpi_subs;
    if (holds) self.unwinder.walk(*self.stack, *self.addresses);
    return 1;
  }

  bool is_new = false;
};

std::vector<std::uintptr_t> Unwinder::addresses_of(const CapturedStack& stack) {
  std::vector<std::uintptr_t> addresses;
  LoadedFiles files{.unwinder = *this, .stack = &stack, .addresses = &addresses};
  ::dl_iterate_phdr(LoadedFiles::gather, &files);
  if (files.is_new) std::ranges::sort(files_, {}, &File::begin);
  ::dl_iterate_phdr(LoadedFiles::walk, &files);
  if (addresses.empty() && stack.python_count == 0) addresses.push_back(stack.registers.at(kReturnAddress));
  return addresses;
}

void Unwinder::forget() {
  files_.clear();
  rules_.clear();
  interpreters_.reset();
}

/// Programs pass through the same places again and again.
const std::optional<Rules>& Unwinder::rules_of(const File& file, std::uintptr_t address) {
  constexpr std::size_t kMostKept = 8192;
  if (rules_.size() >= kMostKept) rules_.clear();
  const auto [entry, is_new] = rules_.try_emplace(address);
  if (is_new && file.tables.header != 0) entry->second = rules_at(file.tables, address);
  return entry->second;
}

const Unwinder::File* Unwinder::file_of(std::uintptr_t address) const {
  const auto after = std::ranges::upper_bound(files_, address, {}, &File::begin);
  return after == files_.begin() || address >= std::prev(after)->end ? nullptr : &*std::prev(after);
}

void Unwinder::walk(const CapturedStack& stack, std::vector<std::uintptr_t>& addresses) {
  if (!interpreters_ && interpreter_ != 0) {
    const File* file = file_of(interpreter_);
    interpreters_ =
        file == nullptr ? std::array<std::uintptr_t, 2>{} : function_at(file->tables, interpreter_);
  }
  const auto runs_python = [&](std::uintptr_t address) {
    return stack.python_count > 0 && interpreters_ && address >= (*interpreters_)[0] &&
           address < (*interpreters_)[1];
  };

  const std::uintptr_t begin = stack.registers.at(kStackPointer);
  const ReadWord read_word = [&](std::uintptr_t address) -> std::optional<std::uintptr_t> {
    std::uintptr_t word = 0;
    if (address < begin || stack.bytes_count < sizeof(word) ||
        address - begin > stack.bytes_count - sizeof(word))
      return std::nullopt;
    std::memcpy(&word, stack.bytes.data() + (address - begin), sizeof(word));
    return word;
  };
  const auto find_pointer = [&](const File& file, std::uintptr_t place, std::uintptr_t stack_pointer) {
    const auto is_code = [this](std::uintptr_t address) { return file_of(address) != nullptr; };
    return find_frame_pointer(stack_pointer, function_at(file.tables, place), read_word, is_code);
  };
  Registers registers = stack.registers;
  Known known = known_of(stack);
  bool is_interrupted = true;  // the address is not where a call returns to
  while (addresses.size() < kMostFrames && registers.at(kReturnAddress) != 0) {
    const std::uintptr_t address = registers.at(kReturnAddress);
    const std::uintptr_t place = is_interrupted ? address : address - 1;
    const File* file = file_of(place);
    // Code that nobody knows, but for what was interrupted, is no caller: the way there was wrong.
    if ((file == nullptr && !addresses.empty()) || runs_python(place)) return;
    addresses.push_back(address);
    const std::uintptr_t frame = registers.at(kStackPointer);
    const std::optional<Rules>* rules = file == nullptr ? nullptr : &rules_of(*file, place);
    const bool needs_pointer =
        rules == nullptr || !*rules || ((*rules)->expression.empty() && (*rules)->base == kFramePointer);
    if (needs_pointer && !known[kFramePointer]) {
      const auto pointer = file == nullptr ? std::nullopt : find_pointer(*file, place, frame);
      if (!pointer) return;
      registers.at(kFramePointer) = *pointer;
      known.set(kFramePointer);
    }
    Step step = rules == nullptr || !*rules ? Step::unknown : step_out(**rules, read_word, registers);
    if (step == Step::outermost) return;
    if (step == Step::unknown) {  // as functions do that keep a frame pointer
      const std::uintptr_t pointer = registers.at(kFramePointer);
      const auto caller = read_word(pointer);
      const auto returns_to = read_word(pointer + sizeof(pointer));
      if (!caller || !returns_to) return;
      registers.at(kFramePointer) = *caller;
      registers.at(kReturnAddress) = *returns_to;
      registers.at(kStackPointer) = pointer + 2 * sizeof(pointer);
      step = Step::called;
    } else {
      known = known_after(**rules, known);
    }
    if (registers.at(kStackPointer) <= frame && !(is_interrupted && registers.at(kStackPointer) == frame))
      return;
    is_interrupted = step == Step::signal;
  }
}

}  // namespace rooflm::inject
