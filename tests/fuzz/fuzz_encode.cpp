// Fuzz target: any bytes through a good tokenizer, and back.
#include <array>
#include <string>
#include <utility>

#include "tests/fuzz/scratch.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  static const text::Tokenizer kTokenizer = [] {
    // Ids 0..255 are bytes, printable ones first: 'a' is 64, 't' 83, 'h' 71, 'e' 68.
    const std::array<std::pair<std::uint32_t, std::uint32_t>, 4> merges = {
        {{83, 71}, {256, 68}, {64, 64}, {258, 258}}};
    const std::array<std::string, 1> special = {"<|endoftext|>"};
    return text::Tokenizer::from_merges(merges, special);
  }();
  const std::string_view words = fuzz::text_of(data, size);
  if (kTokenizer.decode(kTokenizer.encode(words)) != words) std::abort();
  // Threads take a hundred times as long as the rest. An input that is tried alone is the first.
  constexpr int kThreadedOnceIn = 256;
  static int runs = 0;
  if (runs++ % kThreadedOnceIn == 0 && kTokenizer.encode_parallel(words, 2) != kTokenizer.encode(words))
    std::abort();
  return 0;
}
