// Fuzz target: token shards.
#include <vector>

#include "tests/fuzz/scratch.h"
#include "text/shard.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  // Headers have 1024 bytes, nearly all of them zeros: an input is the beginning of one and what follows it.
  constexpr std::size_t kBegin = 16;
  std::string file(fuzz::text_of(data, size).substr(0, kBegin));
  if (size > kBegin) {
    file.resize(text::kShardHeaderBytes);
    file += fuzz::text_of(data, size).substr(kBegin);
  }
  const auto path = fuzz::scratch_file("a.bin", file);
  return fuzz::attempt([&] {
    const text::Shard shard(path);
    std::vector<std::int32_t> tokens(shard.size());
    shard.read(0, tokens);
    shard.check_ids(0, tokens, 50257);
  });
}
