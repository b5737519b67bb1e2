// Fuzz target: adapter_config.json, as PEFT writes it.
#include "tests/fuzz/scratch.h"
#include "train/adapter_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  fuzz::scratch_file(train::kAdapterConfig, fuzz::text_of(data, size));
  return fuzz::attempt([] {
    std::filesystem::create_directories(fuzz::scratch_folder() / train::kBaseLink);
    const train::PeftConfig config = train::read_peft_config(fuzz::scratch_folder());
    if (config.rank < 1) std::abort();
    static_cast<void>(train::adapters_of(config, model::preset("tiny")));
  });
}
