// Names of functions by their place in a program or library.
#include "foreign/elf_symbols.h"

#include <cxxabi.h>
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <tuple>

#include "core/error.h"
#include "core/file.h"

namespace rooflm::foreign {
namespace {

/// The `index`-th Value of a table that begins at `at`, if it is within.
template <class Value>
std::optional<Value> entry_of(std::string_view bytes, std::uint64_t at, std::uint64_t index) {
  if (at > bytes.size() || index >= (bytes.size() - at) / sizeof(Value)) return std::nullopt;
  Value value;
  std::memcpy(static_cast<void*>(&value), bytes.data() + at + index * sizeof(Value), sizeof(Value));
  return value;
}

std::string_view part_of(std::string_view bytes, std::uint64_t at, std::uint64_t length) {
  return at > bytes.size() || length > bytes.size() - at ? std::string_view() : bytes.substr(at, length);
}

}  // namespace

ElfSymbols::ElfSymbols(const std::filesystem::path& path) {
  try {
    const core::MappedFile file(path);
    read(file.text());
  } catch (const core::Error&) {  // it is not here any more, or not for us
  }
}

void ElfSymbols::read(std::string_view bytes) {
  const auto header = entry_of<Elf64_Ehdr>(bytes, 0, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64)
    return;
  for (std::uint64_t i = 0; i < header->e_phnum; ++i) {
    const auto segment = entry_of<Elf64_Phdr>(bytes, header->e_phoff, i);
    if (!segment) break;
    if (segment->p_type == PT_LOAD)
      segments_.push_back({segment->p_offset, segment->p_vaddr, segment->p_filesz});
  }
  for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto section = entry_of<Elf64_Shdr>(bytes, header->e_shoff, i);
    if (!section) break;
    if (section->sh_type != SHT_SYMTAB && section->sh_type != SHT_DYNSYM) continue;
    const auto names = entry_of<Elf64_Shdr>(bytes, header->e_shoff, section->sh_link);
    if (!names) continue;
    read_table(part_of(bytes, section->sh_offset, section->sh_size),
               part_of(bytes, names->sh_offset, names->sh_size));
  }
  // Of several names of a place the longest function's, then the first.
  const auto order = [](const Function& one) { return std::tuple(one.begin, ~one.end, one.name); };
  std::ranges::sort(functions_, {}, order);
  const auto begin_together = [](const Function& a, const Function& b) { return a.begin == b.begin; };
  functions_.erase(std::unique(functions_.begin(), functions_.end(), begin_together), functions_.end());
}

void ElfSymbols::read_table(std::string_view symbols, std::string_view names) {
  for (std::uint64_t i = 0; i < symbols.size() / sizeof(Elf64_Sym); ++i) {
    const auto symbol = entry_of<Elf64_Sym>(symbols, 0, i);
    if (!symbol) return;
    const auto type = ELF64_ST_TYPE(symbol->st_info);
    const bool is_function = type == STT_FUNC || type == STT_GNU_IFUNC;
    if (!is_function || symbol->st_value == 0 || symbol->st_size == 0 || symbol->st_name >= names.size())
      continue;
    const std::string_view rest = names.substr(symbol->st_name);
    functions_.push_back({.begin = symbol->st_value,
                          .end = symbol->st_value + symbol->st_size,
                          .name = std::string(rest.substr(0, rest.find('\0')))});
  }
}

std::string ElfSymbols::function_at(std::uint64_t offset) const {
  const auto segment = std::ranges::find_if(segments_, [offset](const Segment& one) {
    return offset >= one.offset && offset - one.offset < one.bytes;
  });
  if (segment == segments_.end()) return "";
  const std::uint64_t address = offset - segment->offset + segment->address;
  const auto after = std::ranges::upper_bound(functions_, address, {}, &Function::begin);
  if (after == functions_.begin() || address >= std::prev(after)->end) return "";
  return function_name(std::prev(after)->name);
}

std::string function_name(const std::string& symbol) {
  if (!symbol.starts_with("_Z")) return symbol;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0 || text == nullptr) return symbol;
  const std::string name = text.get();
  // The parameters are in the last brackets at the outermost level that are not part of the name.
  int depth = 0;
  std::size_t end = name.size();
  for (std::size_t i = name.size(); i-- > 0;) {
    const char c = name[i];
    if (c == ')' || c == '>') ++depth;
    if (c == '(' || c == '<') --depth;
    if (c == '(' && depth == 0) {
      end = i;
      break;
    }
  }
  return end == 0 ? name : name.substr(0, end);
}

}  // namespace rooflm::foreign
