// Fuzz target: the stream that the recorder's library writes.
#include "foreign/recorded.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  // Headers have 512 bytes, most of them zeros: an input is the beginning of one and what follows it.
  constexpr std::size_t kHeader = 512;
  constexpr std::size_t kBegin = 64;
  std::string file(fuzz::text_of(data, size).substr(0, kBegin));
  if (size > kBegin) {
    file.resize(kHeader);
    file += fuzz::text_of(data, size).substr(kBegin);
  }
  const auto path = fuzz::scratch_file("stream", file);
  return fuzz::attempt([&] { static_cast<void>(foreign::read_stream(path)); });
}
