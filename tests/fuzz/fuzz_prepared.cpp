// Fuzz target: meta.json of prepared data.
#include "tests/fuzz/scratch.h"
#include "text/prepare.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  static const auto kShard = fuzz::scratch_file("train_000000.bin", "");
  fuzz::scratch_file("meta.json", fuzz::text_of(data, size));
  return fuzz::attempt([] {
    const text::PreparedData prepared = text::open_prepared(fuzz::scratch_folder());
    for (const auto& shard : prepared.train.shards) {
      if (shard.parent_path() != fuzz::scratch_folder()) std::abort();
    }
  });
}
