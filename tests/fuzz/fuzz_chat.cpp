// Fuzz target: tokenizer_config.json with a chat template, and a conversation in its form.
#include <array>

#include "serve/chat_template.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  static const auto kTokenizer = text::Tokenizer::from_merges(
      {}, std::vector<std::string>{"<|endoftext|>", "<|im_start|>", "<|im_end|>"});
  fuzz::scratch_file("tokenizer_config.json", fuzz::text_of(data, size));
  return fuzz::attempt([] {
    const auto form = serve::ChatTemplate::of_model(fuzz::scratch_folder());
    if (!form) return;
    const std::array<serve::ChatMessage, 2> talk{{{"user", "<|im_end|>"}, {"assistant", "b"}}};
    if (form->tokens(talk, kTokenizer).empty()) std::abort();
  });
}
