// Fuzz target: safetensors files, header and values.
#include <vector>

#include "model/safetensors.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  const auto path = fuzz::scratch_file("model.safetensors", fuzz::text_of(data, size));
  return fuzz::attempt([&] {
    const model::SafetensorsFile file(path);
    std::vector<double> values;
    for (const model::StoredTensor& tensor : file.tensors()) {
      if (tensor.bytes.size() > size) std::abort();
      values.resize(static_cast<std::size_t>(tensor.shape.numel()));
      if (model::is_float(tensor)) model::read_doubles(tensor, values);
    }
  });
}
