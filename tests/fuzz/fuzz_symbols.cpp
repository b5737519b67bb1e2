// Fuzz target: symbol tables of programs and libraries.
#include "foreign/elf_symbols.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  const foreign::ElfSymbols symbols(fuzz::scratch_file("library.so", fuzz::text_of(data, size)));
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{size / 2}, ~std::uint64_t{0}})
    static_cast<void>(symbols.function_at(offset));
  return 0;
}
