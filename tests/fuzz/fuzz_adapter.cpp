// Fuzz target: adapter_config.json, as PEFT writes it.
#include "tests/fuzz/scratch.h"
#include "train/adapter_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  fuzz::scratch_file(train::kAdapterConfig, fuzz::text_of(data, size));
  return fuzz::attempt([] {
    if (train::read_adapter_config(fuzz::scratch_folder()).lora.empty()) std::abort();
  });
}
