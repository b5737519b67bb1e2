// Fuzz target: the log of a training run that is resumed.
#include "tests/fuzz/scratch.h"
#include "train/train_log.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  const auto path = fuzz::scratch_file("log.jsonl", fuzz::text_of(data, size));
  return fuzz::attempt([&] {
    constexpr std::int64_t kStep = 2;
    train::TrainLog log(path);
    if (log.keep_until(kStep) < kStep || std::filesystem::file_size(path) > size) std::abort();
  });
}
