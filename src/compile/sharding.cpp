// How a step is split over devices.
#include "compile/sharding.h"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace rooflm::compile {
namespace {

void expect(bool holds, const std::string& message) {
  if (!holds) throw core::UsageError(message);
}

void check_degrees(const Sharding& s) {
  expect(s.data >= 1 && s.context >= 1 && s.tensor >= 1 && s.pipeline >= 1 && s.interleave >= 1,
         fmt::format("--dp {}, --cp {}, --tp {}, --pp {} and --interleave {} must be at least 1", s.data,
                     s.context, s.tensor, s.pipeline, s.interleave));
  const auto ranks = static_cast<double>(s.data) * s.context * s.tensor * s.pipeline;
  expect(ranks <= std::numeric_limits<int>::max(),
         fmt::format("--dp {} times --cp {} times --tp {} times --pp {} is more ranks than can be counted",
                     s.data, s.context, s.tensor, s.pipeline));
  expect(s.zero >= 0 && s.zero <= 3, fmt::format("--zero {}: there are 0, 1, 2 and 3", s.zero));
  expect(s.zero == 0 || s.data_ranks() > 1, fmt::format("--zero {} splits over data-parallel ranks, of which "
                                                        "there is one: raise --dp (or --cp) or leave out "
                                                        "--zero",
                                                        s.zero));
  expect(!s.sequence_parallel || s.tensor > 1,
         "--sequence-parallel splits over tensor-parallel ranks, of which there is one: raise --tp or leave "
         "it out");
  expect(s.interleave == 1 || s.pipeline > 1, fmt::format("--interleave {} divides the stages of a pipeline, "
                                                          "of which there is one: raise --pp or leave it out",
                                                          s.interleave));
  expect(s.interleave == 1 || s.schedule == PipelineSchedule::one_f_one_b,
         fmt::format("--interleave {} goes with the 1f1b schedule of a pipeline, not gpipe", s.interleave));
}

/// Each rank has two pieces of a sequence, one from its beginning and one as far from its end, so that all
/// have as many scores below the diagonal.
void check_context(const Sharding& s, std::int64_t seq) {
  if (s.context == 1) return;
  const std::int64_t pieces = 2 * std::int64_t{s.context};
  expect(seq % pieces == 0,
         fmt::format("--cp {} cuts a sequence into {} pieces, which do not divide --seq {}", s.context,
                     pieces, seq));
}

/// Tensor-parallel ranks that share each expert.
int ranks_of_expert(const Sharding& s) { return s.sequence_parallel ? s.expert_tensor : s.tensor; }

/// Whole experts for each rank, of ranks with tokens of their own.
void check_experts(const Sharding& s, const model::ModelConfig& c) {
  expect(s.expert >= 1, fmt::format("--ep {} must be at least 1", s.expert));
  expect(
      s.expert_tensor == 1 || s.expert_tensor == s.tensor,
      fmt::format("--expert-tp {}: there are 1 and all {} tensor-parallel ranks", s.expert_tensor, s.tensor));
  if (s.expert == 1) return;
  expect(c.experts.count > 0, fmt::format("--ep {}: {} has no experts", s.expert, c.name));
  expect(c.experts.count % s.expert == 0,
         fmt::format("--ep {} does not divide the {} experts of {}", s.expert, c.experts.count, c.name));
  const int sharing = s.data_ranks() * s.tensor / ranks_of_expert(s);
  expect(sharing % s.expert == 0,
         fmt::format("--ep {} does not divide the {} {}ranks, which share the experts", s.expert, sharing,
                     s.tensor == ranks_of_expert(s) ? "data-parallel " : ""));
}

/// The parts of a model that no pass splits over tensor-parallel ranks, in words; empty: none.
std::string_view unsplit(const Sharding& s, const model::ModelConfig& c, Purpose purpose) {
  const bool is_known_split = purpose == Purpose::run || s.sequence_parallel;
  if (c.experts.count > 0 && !is_known_split) return "experts";
  if (c.experts.biases || c.experts.has_own_norms) return "biases and norms of experts";
  if (c.latent.kv_rank > 0) return "latent attention";
  const bool has_other_norms = c.qk_norm != model::QkNorm::none && c.qk_norm != model::QkNorm::head;
  if (has_other_norms || c.arch.norm_place != model::NormPlace::before) return "norms";
  const bool is_known = c.arch == model::Arch::gpt2 || c.arch == model::Arch::llama || c.experts.count > 0;
  if (!is_known) return "layers";
  const bool has_factors = c.embedding_scale != 1 || c.residual_scale != 1 || c.logit_scale != 1;
  return has_factors || c.logit_cap > 0 || c.sinks || c.head_bias ? "multipliers and biases" : "";
}

void check_tensor(const Sharding& s, const model::ModelConfig& c, std::int64_t batch, std::int64_t seq,
                  Purpose purpose) {
  if (const std::string_view parts = unsplit(s, c, purpose); s.tensor > 1 && !parts.empty()) {
    throw core::Unavailable(
        fmt::format("--tp {}: the {} of {} cannot be split over tensor-parallel ranks yet; leave it out",
                    s.tensor, parts, c.name));
  }
  if (purpose == Purpose::run && s.sequence_parallel && c.experts.count > 0) {
    throw core::Unavailable(fmt::format(
        "--sequence-parallel: ranks that share the experts of {} have the same rows; leave it out", c.name));
  }
  const auto divides = [&](std::int64_t extent, const char* what) {
    expect(extent % s.tensor == 0,
           fmt::format("--tp {} does not divide the {} {} of {}", s.tensor, extent, what, c.name));
  };
  divides(c.heads, "heads");
  divides(c.kv_heads, "key/value heads");
  divides(c.d_ff, "columns of the feed-forward layers (--d-ff)");
  if (c.experts.count > 0) divides(c.experts.shared_d_ff, "columns of the shared experts");
  if (c.experts.count > 0 && ranks_of_expert(s) > 1) divides(c.experts.d_ff, "columns of each expert");
  if (s.sequence_parallel && batch * seq % s.tensor != 0) {
    throw core::UsageError(fmt::format(
        "--tp {} does not divide the {} tokens of --batch {} and --seq {}, which sequence-parallel "
        "ranks share",
        s.tensor, batch * seq, batch, seq));
  }
}

void check_pipeline(const Sharding& s, const model::ModelConfig& c, int micro_batches, Purpose purpose) {
  const std::int64_t parts = std::int64_t{s.pipeline} * s.interleave;
  const std::string stages = s.interleave == 1
                                 ? fmt::format("--pp {}", s.pipeline)
                                 : fmt::format("--pp {} times --interleave {}", s.pipeline, s.interleave);
  expect(parts <= c.layers,
         fmt::format("{} is more parts than {} has layers ({})", stages, c.name, c.layers));
  if (s.short_ends) {
    expect(s.pipeline > 1, "--short-ends is about the stages of a pipeline: raise --pp or leave it out");
    expect((c.layers + 2) % parts == 0 && c.layers + 2 > parts,
           fmt::format("--short-ends: {} does not divide the {} layers of {} and two more", stages, c.layers,
                       c.name));
  } else {
    const bool would_fit = purpose == Purpose::plan && s.pipeline > 1 && (c.layers + 2) % parts == 0;
    expect(c.layers % parts == 0, fmt::format("{} does not divide the {} layers of {}{}", stages, c.layers,
                                              c.name, would_fit ? "; with --short-ends it does" : ""));
  }
  expect(s.interleave == 1 || micro_batches % s.pipeline == 0,
         fmt::format("--interleave {}: --pp {} does not divide the number of micro-batches in a step, {}",
                     s.interleave, s.pipeline, micro_batches));
}

}  // namespace

void check(const Sharding& sharding, const model::ModelConfig& config, std::int64_t batch, std::int64_t seq,
           int micro_batches, Purpose purpose) {
  check_degrees(sharding);
  check_context(sharding, seq);
  check_experts(sharding, config);
  check_tensor(sharding, config, batch, seq / sharding.context, purpose);
  check_pipeline(sharding, config, micro_batches, purpose);
}

}  // namespace rooflm::compile
