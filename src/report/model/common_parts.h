// Parts that language models have whoever wrote them, so that steps of different programs can be compared.
// Private to the room.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "record/rows.h"

namespace rooflm::report {

/// The part of each op, by its number: "embedding", "attention", "feed_forward", "norms_and_residuals",
/// "head_and_loss", "optimizer", "other". Told from the names of blocks ("attention", "self_attn", "mlp",
/// "input_layernorm", "lm_head") and from the classes of modules ("LlamaAttention", "RMSNorm"). What a layer
/// does itself is residuals. Head and loss are one part: some programs compute them in one, and what no
/// module does outside the layers is the loss, mostly.
std::map<std::int64_t, std::string> common_parts(std::span<const record::Op> ops);

}  // namespace rooflm::report
