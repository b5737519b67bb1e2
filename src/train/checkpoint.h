// Checkpoints: directories that appear whole or not at all, and open in Hugging Face transformers.
//
// OUT/checkpoint-000123/ holds config.json and model.safetensors (fp32, Hugging Face layout),
// optimizer.safetensors (m.NAME and v.NAME of each parameter; fp16: loss_scale), state.json and the
// tokenizer.json of the data. OUT/latest is a link to the newest one. Names that end in .tmp are unfinished
// or being removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/system/descriptor.h"
#include "model/config.h"
#include "model/huggingface.h"
#include "text/tokenizer.h"
#include "train/data_loader.h"
#include "train/session.h"
#include "train/train_options.h"

namespace rooflm::train {

/// A shard as a checkpoint remembers it: the same name and number of tokens count as the same shard.
struct ShardName {
  std::string name;
  std::uint64_t tokens = 0;
  bool operator==(const ShardName&) const = default;
};

/// state.json: where a run is and how it was told to go on.
struct CheckpointState {
  std::int64_t step = 0;     ///< updates done
  std::uint64_t tokens = 0;  ///< trained on
  LoaderState loader{};
  std::optional<double> best_val_loss{};
  std::filesystem::path base;  ///< of adapters: the directory of the frozen weights; "" without them
  std::string model_name;
  std::int64_t padded_vocab = 0;                      ///< config.json does not say it
  std::vector<std::filesystem::path> data, val_data;  ///< as given to the run
  std::vector<ShardName> shards;                      ///< of the training part
  OptionTexts options;
  /// TrainOptions::gemm_choices: a run that goes on runs the algorithms it began with, whatever the autotune
  /// cache holds by then. "" where there are none.
  std::string gemm_choices;
  /// Files that weights and optimizer state are in, one of each rank that wrote it
  /// (train/checkpoint_parts.h); 0: whole.
  int parts = 0;
  std::map<std::string, std::string> checksums;  ///< of the other files by name; save_checkpoint fills it in
};

/// The complete checkpoints in `out`, oldest first; none when it does not exist.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& out);

/// Reads state.json. Throws core::InputError that names the file, the key and the expectation when it is
/// missing, damaged, or not of this version.
CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint);
/// The model of a checkpoint: config.json with what state.json adds.
model::ModelConfig read_checkpoint_config(const std::filesystem::path& checkpoint,
                                          const CheckpointState& state);
/// The model of a directory with config.json, be it a checkpoint or not.
model::ModelConfig read_model_config(const std::filesystem::path& directory);

/// What is wrong with OUT/latest, which then tells of a checkpoint that is lost; "" where nothing is, or
/// where a run was killed before it made it.
std::string problem_of_latest(const std::filesystem::path& out);

/// OUT/latest leads to the newest checkpoint, and older ones but the last `keep` are removed: the end of
/// saving, which a run that was killed there leaves to the next. Throws core::InputError when the link cannot
/// be written.
void settle_checkpoints(const std::filesystem::path& out, std::int64_t keep);

/// What a checkpoint takes from the tokenizer of its data.
struct CheckpointTokenizer {
  std::string text{};      ///< of tokenizer.json; "": there is none
  model::TextEnds ends{};  ///< for config.json
};
/// The tokens at which texts begin and end, as far as the tokenizer has some.
model::TextEnds text_ends(const text::Tokenizer& tokenizer);

/// Saves weights and optimizer state of `session` to OUT/checkpoint-STEP: written aside, synchronised,
/// renamed; then OUT/latest is moved to it, and older checkpoints but the last `keep` are removed.
/// Of several ranks the first calls it, and the others Session::serve_parts: a checkpoint does not know how
/// many there were. With `state.parts`, their number, the others call save_part. Returns the checkpoint.
/// Throws core::InputError when it cannot be written; what was there is then untouched.
std::filesystem::path save_checkpoint(const std::filesystem::path& out, const CheckpointState& state,
                                      const Session& session, const CheckpointTokenizer& tokenizer,
                                      std::int64_t keep);

/// On the others of a checkpoint of parts: writes what this rank has, and returns when the checkpoint is
/// there.
void save_part(const std::filesystem::path& out, const CheckpointState& state, const Session& session);

/// Before weights of `directory` are loaded for something else than resuming: if it is a checkpoint, throws
/// core::InputError that names the file when one, the optimizer's aside, is not what was saved. Files that
/// are missing are left to their readers. Reads all bytes once, at memory speed.
void verify_model(const std::filesystem::path& directory);
/// The same, and throws core::InputError if weights of `config` are missing or are not of its shapes: before
/// memory is allocated for them.
void verify_weights(const std::filesystem::path& directory, const model::ModelConfig& config);

/// Reads weights and optimizer state into `session`, whose training engine exists. Throws core::InputError
/// that names the file, the tensor and the expectation when a file is not what was saved, or a tensor is
/// missing, left over or of another shape.
void load_checkpoint(const std::filesystem::path& checkpoint, Session& session);

/// The directory with config.json that `path` stands for: itself, or the newest checkpoint when it is the
/// output of a training run. Anything else is returned as it is.
std::filesystem::path resolve_model_directory(const std::filesystem::path& path);

/// Holds an output directory for one training run, made when missing, and removed at the end when nothing
/// came into it; removes what interrupted runs have left unfinished, by its exact names. Throws
/// core::InputError when it cannot be made or written, core::UsageError when another run holds it. The lock
/// goes with the process, however that ends.
class OutputDirectory {
 public:
  explicit OutputDirectory(const std::filesystem::path& path);
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  ~OutputDirectory();

 private:
  std::filesystem::path path_;
  core::Descriptor lock_;
  bool is_made_ = false;
};

}  // namespace rooflm::train
