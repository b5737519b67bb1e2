// Where rooflm's parameters lie in the tensors of Hugging Face files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "model/config.h"
#include "model/parameters.h"

namespace rooflm::model {

/// A tensor of the file that makes up the rows [first_row, first_row + rows) of a parameter. The rows are the
/// first dimension of the parameter; a vector has rows of one element.
struct Part {
  std::string tensor;  ///< "transformer.h.0.attn.c_attn.weight"
  core::Shape shape;   ///< in the file
  std::int64_t first_row = 0;
  bool transposed = false;  ///< the file stores [in, out], the parameter [out, in]
};

/// The parts of one parameter of `config`, in row order. Rows that no part covers are padding: zero.
std::vector<Part> parts_of(const Parameter& parameter, const ModelConfig& config);

/// The full name of a tensor of a file: with the prefix that bare models leave out. "" for tensors that are
/// no weights (attention masks, rotary tables, the copy of a tied head).
std::string weight_name(std::string_view stored_name, const ModelConfig& config);

}  // namespace rooflm::model
