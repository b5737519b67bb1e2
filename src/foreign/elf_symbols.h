// Names of functions by their place in a program or library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace rooflm::foreign {

/// The functions that the symbol tables (.symtab, .dynsym) of an ELF file of 64 bits name, read once.
class ElfSymbols {
 public:
  /// Of what cannot be read, or lies about itself, no function is known: nothing throws.
  explicit ElfSymbols(const std::filesystem::path& path);
  /// The function that `offset` bytes of the file belong to, demangled and without its parameters; "" where
  /// none is known.
  [[nodiscard]] std::string function_at(std::uint64_t offset) const;

 private:
  struct Segment {
    std::uint64_t offset = 0, address = 0, bytes = 0;
  };
  struct Function {
    std::uint64_t begin = 0, end = 0;  ///< addresses as the file has them
    std::string name{};
  };
  void read(std::string_view bytes);
  void read_table(std::string_view symbols, std::string_view names);

  std::vector<Segment> segments_;
  std::vector<Function> functions_;  ///< by address
};

/// "at::native::add" of "at::native::add(at::Tensor const&) const"; a name that is not mangled stays.
std::string function_name(const std::string& symbol);

}  // namespace rooflm::foreign
