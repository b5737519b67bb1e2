// Fuzz target: the body of an HTTP request to `rooflm serve`.
#include <functional>
#include <string_view>

#include "serve/openai.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  static const serve::ServedModel model{
      .name = "tiny",
      .tokenizer = text::Tokenizer::from_merges(
          {}, std::vector<std::string>{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}),
      .vocab = 259,
      .positions = 64,
      .longest_prompt = 63,
      .chat = serve::ChatTemplate::named("chatml")};
  for (const bool is_chat : {false, true}) {
    try {
      const serve::ApiRequest request = serve::read_request(fuzz::text_of(data, size), is_chat, model, 1);
      for (const serve::TextRequest& text : request.texts) {
        if (text.prompt.empty() || std::ssize(text.prompt) > model.longest_prompt) std::abort();
        for (const std::int32_t id : text.prompt) {
          if (id < 0 || id >= model.vocab) std::abort();
        }
      }
      // An answer of 128 texts takes a hundred times as long as reading. A checksum chooses evenly, and the
      // same each time.
      constexpr std::size_t kOneIn = 16;
      if (request.texts.size() > 2 && std::hash<std::string_view>{}(fuzz::text_of(data, size)) % kOneIn != 0)
        continue;
      serve::ApiAnswer answer(request, model, "id", 0);
      static_cast<void>(answer.add(0, {.text = "a", .tokens = {{.id = 65}}, .finish = serve::Finish::stop}));
      static_cast<void>(answer.finish());
    } catch (const serve::ApiError& error) {
      static_cast<void>(error.body());
    }
  }
  return 0;
}
