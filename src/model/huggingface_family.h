// The family of a model, as files know it. Of src/model alone: model/huggingface.h reads and writes
// directories.
#pragma once

#include "core/named.h"
#include "model/config.h"
#include "model/config_keys.h"
#include "model/family_table.h"

namespace rooflm::model {

/// By the names of config.json; of several the first one is written where the family has none of its own.
inline constexpr auto kActivations =
    core::named<Activation>("activation", {{Activation::silu, "silu"},
                                           {Activation::silu, "swish"},
                                           {Activation::gelu_tanh, "gelu_new"},
                                           {Activation::gelu_tanh, "gelu_pytorch_tanh"},
                                           {Activation::gelu_tanh, "gelu_fast"},
                                           {Activation::gelu, "gelu"},
                                           {Activation::relu, "relu"},
                                           {Activation::relu2, "relu2"},
                                           {Activation::xielu, "xielu"},
                                           {Activation::clipped_swiglu, "clipped_swiglu"}});

/// The model that the keys of a config.json describe, without name, family and padding.
ModelConfig read_family(const ConfigKeys& keys, const Family& family);

/// What the value `rope` of the key (rope_scaling or rope_parameters) says of the model's rotary positions.
/// Returns whether it has an object for each kind of layer.
bool read_rope(const ConfigKeys& keys, const char* key, const nlohmann::json& rope, ModelConfig& c);

/// The row of the model: that of its file, else the first of the rows of presets whose config.json says all
/// of it. Throws core::Unavailable if there is none.
const Family& family_of(const ModelConfig& config);

}  // namespace rooflm::model
