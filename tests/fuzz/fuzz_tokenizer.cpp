// Fuzz target: tokenizer.json, and texts encoded by what it describes.
#include <string>

#include "tests/fuzz/scratch.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  const auto path = fuzz::scratch_file("tokenizer.json", fuzz::text_of(data, size));
  return fuzz::attempt([&] {
    const auto tokenizer = text::Tokenizer::load(path);
    for (const std::string_view words :
         {"the cat's  2 dogs\n\n aaaa", "\xff\xc3 gr\xc3\xbc\xc3\x9f <|endoftext|>"}) {
      const auto ids = tokenizer.encode(words, text::SpecialTokens::recognise);
      static_cast<void>(tokenizer.decode(ids));
      if (tokenizer.decode(tokenizer.encode(words)) != words) std::abort();
    }
  });
}
