// Fuzz target: state.json of a checkpoint.
#include "tests/fuzz/scratch.h"
#include "train/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflm;
  fuzz::scratch_file("state.json", fuzz::text_of(data, size));
  return fuzz::attempt([] {
    const train::CheckpointState state = train::read_checkpoint_state(fuzz::scratch_folder());
    if (state.step < 0 || state.checksums.empty()) std::abort();
  });
}
