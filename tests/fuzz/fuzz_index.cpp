// Fuzz target: model.safetensors.index.json of a model directory, beside one good shard.
#include "model/safetensors.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  static const auto kShard = [] {
    constexpr std::string_view kHeader = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    std::string file(sizeof(std::uint64_t), '\0');
    file[0] = static_cast<char>(kHeader.size());
    return fuzz::scratch_file("model-00001-of-00002.safetensors",
                              file.append(kHeader).append(2 * sizeof(float), '\0'));
  }();
  fuzz::scratch_file("model.safetensors.index.json", fuzz::text_of(data, size));
  return fuzz::attempt([] {
    for (const model::SafetensorsFile& file : model::open_safetensors_directory(fuzz::scratch_folder())) {
      if (file.path().parent_path() != fuzz::scratch_folder()) std::abort();
    }
  });
}
