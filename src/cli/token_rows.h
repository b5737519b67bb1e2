// generate --logprobs: tokens as rows, with those that were likely, too.
#pragma once

#include <vector>

#include "cli/table.h"
#include "text/tokenizer.h"
#include "train/generate.h"

namespace rooflm::cli {

std::vector<report::Column> token_columns();

/// By text and place, most likely first: the tokens of Generation::made.
Table tokens_table(const train::Generation& generation, const text::Tokenizer& tokenizer);

}  // namespace rooflm::cli
