// Addresses as names: of this very program, of made-up ones, and of files that lie.
#include "foreign/stack_names.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>

namespace rooflm::foreign {

/// What is looked for: a function whose place is known.
__attribute__((noinline)) int named_for_test(int value) { return value * 3 + 1; }

namespace {

namespace fs = std::filesystem;

/// As the injection library tells of the code of this process.
std::map<std::string, std::string> own_code() {
  std::map<std::string, std::string> facts;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    unsigned long offset = 0;
    char rights[5] = {};  // NOLINT(modernize-avoid-c-arrays): sscanf
    int path = 0;
    const int read =
        std::sscanf(line.c_str(), "%lx-%lx %4s %lx %*s %*s %n", &begin, &end, rights, &offset, &path);
    if (read < 4 || rights[2] != 'x') continue;
    facts[fmt::format("code at {:x}", begin)] =
        fmt::format("{:x} {:x} {}", end, offset, line.substr(static_cast<std::size_t>(path)));
  }
  return facts;
}

std::string own_name() { return fs::read_symlink("/proc/self/exe").filename().string(); }

TEST(StackNames, FunctionsOfThisProgram) {
  auto facts = own_code();
  StackNames names(facts);
  const auto address = reinterpret_cast<std::uintptr_t>(&named_for_test);
  const std::string frame = "rooflm::foreign::named_for_test (" + own_name() + ")";
  EXPECT_EQ(names.text_of(fmt::format("|{:x}", address)), frame);
  // What an outer frame has is where its call returns to: the byte before is the call's.
  EXPECT_EQ(names.text_of(fmt::format("|{:x} {:x}", address, address + 1)), frame + ";" + frame);
}

TEST(StackNames, PythonsLinesStandBeforeWhatTheInnermostOneCalled) {
  std::map<std::string, std::string> facts = own_code();
  facts["code ab+10"] = "main (t.py:1)";
  facts["code cd+2"] = "step (t.py:7); odd";
  StackNames names(facts);
  const auto address = reinterpret_cast<std::uintptr_t>(&named_for_test);
  const std::string frame = "rooflm::foreign::named_for_test (" + own_name() + ")";
  EXPECT_EQ(names.text_of(fmt::format("ab+10 ee+0 cd+2|{:x}", address)),
            "main (t.py:1);step (t.py:7): odd;" + frame);
  EXPECT_EQ(names.text_of("ab+10|"), "main (t.py:1)");
  EXPECT_EQ(names.text_of("ab+10"), "main (t.py:1)");
}

TEST(StackNames, FilesWithoutSymbolsAreOneFrame) {
  std::map<std::string, std::string> facts = {{"code at 1000", "2000 0 /no/such/libquiet.so.1"},
                                              {"code at 5000", "6000 0 [vdso]"},
                                              {"code at 7000", "8000 0 "},
                                              {"code at zz", "1 2 /x"},
                                              {"code at 9000", "nonsense"}};
  StackNames names(facts);
  EXPECT_EQ(names.text_of("|1100 1200 5001 1300"), "[libquiet.so.1];[vdso];[libquiet.so.1]");
  EXPECT_EQ(names.text_of("|7001"), "[no file]");
  EXPECT_EQ(names.text_of("|9001 ffffffffffffffff xyz"), "[no file]");
  EXPECT_EQ(names.text_of(""), "");
}

TEST(StackNames, NamesOfFunctionsHaveNoParameters) {
  EXPECT_EQ(function_name("main"), "main");
  EXPECT_EQ(function_name("_ZN2at6native3addERKNS_6TensorE"), "at::native::add");
  EXPECT_EQ(function_name("_ZN12_GLOBAL__N_13runEi"), "(anonymous namespace)::run");
  EXPECT_EQ(function_name("_ZN1AclEi"), "A::operator()");
  EXPECT_EQ(function_name("_ZNK1A3getEv"), "A::get");
  EXPECT_EQ(function_name("_Znonsense"), "_Znonsense");
}

TEST(ElfSymbols, FilesThatLieAreNoFault) {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::string bytes(1 << 16, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const fs::path path = fs::temp_directory_path() / ("rooflm-elf-" + std::to_string(::getpid()));
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    std::string changed = bytes.substr(0, round == 0 ? bytes.size() : random() % bytes.size());
    for (int i = 0; i < 20 && !changed.empty(); ++i)
      changed[random() % std::min<std::size_t>(changed.size(), 512)] = static_cast<char>(random());
    if (changed.size() > 4)
      changed.replace(0, 5,
                      "\x7f"
                      "ELF\x02");
    std::ofstream(path, std::ios::binary) << changed;
    const ElfSymbols symbols(path);
    for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{4096}, ~std::uint64_t{0}}) {
      static_cast<void>(symbols.function_at(offset));
    }
  }
  fs::remove(path);
  EXPECT_EQ(ElfSymbols(path).function_at(0), "");
}

}  // namespace
}  // namespace rooflm::foreign
