// Stacks of addresses as names of functions and lines.
#include "foreign/stack_names.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/printable.h"

namespace rooflm::foreign {
namespace {

std::optional<std::uint64_t> hex_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Takes the text up to the next blank, and the blank.
std::string_view take_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + 1));
  return word;
}

/// The interpreter's own loop: what it calls belongs to the innermost line of Python.
bool runs_python(std::string_view name) {
  return name.starts_with("_PyEval_EvalFrame") || name.starts_with("PyEval_EvalCode");
}

/// Frames are parted by semicolons.
std::string frame_of(const std::string& name) {
  constexpr std::size_t kMost = 200;
  std::string text = core::printable(name, kMost);
  std::ranges::replace(text, ';', ':');
  return text;
}

}  // namespace

std::string addresses_of_frames(std::uint32_t innermost,
                                const std::unordered_map<std::uint32_t, std::string>& texts) {
  constexpr std::size_t kMostFrames = 512;  // of a stack; those who write take fewer
  std::size_t count = 0;
  std::vector<std::string_view> python;
  std::string native;
  for (auto frame = texts.find(innermost); frame != texts.end();) {
    std::string_view text = frame->second;
    const auto caller = hex_of(take_word(text));
    if (!caller || text.empty()) break;
    if (text.find('+') != std::string_view::npos) {
      python.push_back(text);
    } else {
      native += (native.empty() ? "" : " ") + std::string(text);
    }
    if (*caller >= frame->first || ++count == kMostFrames) break;
    frame = texts.find(static_cast<std::uint32_t>(*caller));
  }
  std::string addresses;
  std::ranges::reverse(python);
  for (const std::string_view frame : python) {
    addresses += (addresses.empty() ? "" : " ") + std::string(frame);
  }
  return addresses + '|' + native;
}

StackNames::StackNames(const std::map<std::string, std::string>& facts) : facts_(facts) {
  constexpr std::string_view kCode = "code at ";
  for (auto fact = facts.lower_bound(std::string(kCode));
       fact != facts.end() && fact->first.starts_with(kCode); ++fact) {
    std::string_view value = fact->second;
    const auto begin = hex_of(std::string_view(fact->first).substr(kCode.size()));
    const auto end = hex_of(take_word(value));
    const auto offset = hex_of(take_word(value));
    if (begin && end && offset) codes_[*begin] = {.end = *end, .offset = *offset, .path = std::string(value)};
  }
}

std::string StackNames::text_of(std::string_view stack) {
  std::vector<std::string> frames;
  const std::size_t bar = std::min(stack.find('|'), stack.size());
  std::string_view python = stack.substr(0, bar);
  while (!python.empty()) {
    const auto line = facts_.find("code " + std::string(take_word(python)));
    // What has no name is the interpreter's own, or was gone before it was named. Our own marks stand between
    // calls of the program.
    if (line != facts_.end() && line->second.find("(rooflm_torch.py:") == std::string::npos)
      frames.push_back(frame_of(line->second));
  }
  const bool has_python = !frames.empty();
  std::vector<std::string> native;
  std::string_view rest = stack.substr(std::min(stack.size(), bar + 1));
  for (bool is_innermost = true; !rest.empty(); is_innermost = false) {
    const auto address = hex_of(take_word(rest));
    if (!address) continue;
    // The others are where their calls return to, which may be another function.
    const std::string& name = name_of(is_innermost ? *address : *address - 1);
    if (has_python && runs_python(name)) break;
    const bool repeats = !native.empty() && name.starts_with('[') && native.back() == name;
    if (!name.empty() && !repeats) native.push_back(name);
  }
  std::ranges::reverse(native);
  for (const std::string& name : native) frames.push_back(frame_of(name));
  std::string text;
  for (const std::string& frame : frames) text += (text.empty() ? "" : ";") + frame;
  return text;
}

const std::string& StackNames::name_of(std::uint64_t address) {
  const auto [entry, is_new] = names_.try_emplace(address);
  if (is_new) entry->second = find_name(address);
  return entry->second;
}

std::string StackNames::find_name(std::uint64_t address) {
  const auto after = codes_.upper_bound(address);
  if (after == codes_.begin() || address >= std::prev(after)->second.end) return "[no file]";
  const Code& code = std::prev(after)->second;
  const std::string file = code.path.substr(code.path.rfind('/') + 1);
  if (!code.path.starts_with('/'))
    return "[" +
           (file.empty()            ? "no file"
            : file.starts_with('[') ? file.substr(1, file.size() - 2)
                                    : file) +
           "]";
  std::unique_ptr<ElfSymbols>& symbols = files_[code.path];
  if (symbols == nullptr) symbols = std::make_unique<ElfSymbols>(code.path);
  const std::string function = symbols->function_at(address - std::prev(after)->first + code.offset);
  return function.empty() ? "[" + file + "]" : function + " (" + file + ")";
}

}  // namespace rooflm::foreign
