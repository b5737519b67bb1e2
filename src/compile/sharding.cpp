// How a step is split over devices.
#include "compile/sharding.h"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/names.h"

namespace rooflm::compile {
namespace {

void expect(bool holds, const std::string& message) {
  if (!holds) throw core::UsageError(message);
}

void check_degrees(const Sharding& s) {
  expect(s.data >= 1 && s.tensor >= 1 && s.pipeline >= 1 && s.interleave >= 1,
         fmt::format("--dp {}, --tp {}, --pp {} and --interleave {} must be at least 1", s.data, s.tensor,
                     s.pipeline, s.interleave));
  const auto ranks = static_cast<double>(s.data) * s.tensor * s.pipeline;
  expect(ranks <= std::numeric_limits<int>::max(),
         fmt::format("--dp {} times --tp {} times --pp {} is more ranks than can be counted", s.data,
                     s.tensor, s.pipeline));
  expect(s.zero >= 0 && s.zero <= 3, fmt::format("--zero {}: there are 0, 1, 2 and 3", s.zero));
  expect(
      s.zero == 0 || s.data > 1,
      fmt::format(
          "--zero {} splits over data-parallel ranks, of which there is one: raise --dp or leave out --zero",
          s.zero));
  expect(!s.sequence_parallel || s.tensor > 1,
         "--sequence-parallel splits over tensor-parallel ranks, of which there is one: raise --tp or leave "
         "it out");
  expect(s.interleave == 1 || s.pipeline > 1, fmt::format("--interleave {} divides the stages of a pipeline, "
                                                          "of which there is one: raise --pp or leave it out",
                                                          s.interleave));
  expect(s.interleave == 1 || s.schedule == PipelineSchedule::one_f_one_b,
         fmt::format("--interleave {} goes with --schedule 1f1b, not gpipe", s.interleave));
}

void check_tensor(const Sharding& s, const model::ModelConfig& c, std::int64_t batch, std::int64_t seq) {
  const auto divides = [&](std::int64_t extent, const char* what) {
    expect(extent % s.tensor == 0,
           fmt::format("--tp {} does not divide the {} {} of {}", s.tensor, extent, what, c.name));
  };
  divides(c.heads, "heads");
  divides(c.kv_heads, "key/value heads");
  divides(c.d_ff, "columns of the feed-forward layers (--d-ff)");
  if (s.sequence_parallel && batch * seq % s.tensor != 0) {
    throw core::UsageError(
        fmt::format("--sequence-parallel: --tp {} does not divide the {} tokens of --batch {} and --seq {}",
                    s.tensor, batch * seq, batch, seq));
  }
}

void check_pipeline(const Sharding& s, const model::ModelConfig& c, int micro_batches) {
  const std::int64_t parts = std::int64_t{s.pipeline} * s.interleave;
  const std::string stages = s.interleave == 1
                                 ? fmt::format("--pp {}", s.pipeline)
                                 : fmt::format("--pp {} times --interleave {}", s.pipeline, s.interleave);
  expect(parts <= c.layers,
         fmt::format("{} is more parts than {} has layers ({})", stages, c.name, c.layers));
  expect(c.layers % parts == 0,
         fmt::format("{} does not divide the {} layers of {}", stages, c.layers, c.name));
  expect(s.interleave == 1 || micro_batches % s.pipeline == 0,
         fmt::format("--interleave {}: --pp {} must divide the micro-batches (--grad-accum {})", s.interleave,
                     s.pipeline, micro_batches));
}

}  // namespace

std::string_view name_of(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::gpipe ? "gpipe" : "1f1b";
}

PipelineSchedule parse_schedule(std::string_view name) {
  for (const auto schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b}) {
    if (name == name_of(schedule)) return schedule;
  }
  throw core::UsageError(core::unknown_name("schedule", name, std::vector<std::string>{"gpipe", "1f1b"}));
}

void check(const Sharding& sharding, const model::ModelConfig& config, std::int64_t batch, std::int64_t seq,
           int micro_batches) {
  check_degrees(sharding);
  check_tensor(sharding, config, batch, seq);
  check_pipeline(sharding, config, micro_batches);
}

}  // namespace rooflm::compile
