// Fuzz target: config.json of a model directory.
#include "model/huggingface.h"
#include "model/parameters.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  fuzz::scratch_file("config.json", fuzz::text_of(data, size));
  return fuzz::attempt([] {
    const model::ModelConfig config = model::read_config(fuzz::scratch_folder());
    if (model::parameter_count(config) <= 0) std::abort();
    if (model::model_flop_per_token(config, 1) < 0) std::abort();
    static_cast<void>(model::config_json(config, core::DType::f32));
  });
}
