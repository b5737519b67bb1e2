// Files of checkpoints of parts that somebody has changed, or that do not make a whole.
#include "train/checkpoint_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "training_testing.h"

namespace rooflm::train {
namespace {

using Values = std::vector<float>;

class Parts : public ::testing::Test {
 protected:
  /// The file of a rank, with one tensor.
  void write(int rank, int ranks, const std::string& places, const Values& values) {
    const auto send = [values](const core::ByteSink& sink) { sink(std::as_bytes(std::span(values))); };
    model::write_safetensors(directory_ / part_name(rank, ranks),
                             {{.name = "w",
                               .dtype = core::DType::f32,
                               .shape = {static_cast<std::int64_t>(values.size())},
                               .write = send}},
                             {{"w", places}});
  }
  Values read(int ranks, std::size_t elements) {
    Values whole(elements);
    PartFiles(directory_.path(), ranks).read("w", whole);
    return whole;
  }
  std::string complaint(int ranks, std::size_t elements) {
    try {
      read(ranks, elements);
    } catch (const core::InputError& error) {
      return error.what();
    }
    return "no error";
  }
  testing::ScratchDirectory directory_;
};

TEST_F(Parts, MakeTheWhole) {
  write(0, 2, "0 2 4 2", {0, 1, 4, 5});  // the first two columns of four
  write(1, 2, "2 2 4 2", {2, 3, 6, 7});
  EXPECT_EQ(read(2, 8), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
  write(1, 2, "2 2 0 1 6 1 0 1 7 1 0 1", {2, 3, 6, 7});
  EXPECT_EQ(read(2, 8), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(Parts, WhatIsNowhereIsNamed) {
  write(0, 2, "0 2 0 1", {0, 1});
  write(1, 2, "3 1 0 1", {3});
  EXPECT_NE(complaint(2, 4).find("tensor w: element 2 is in none of the 2 parts"), std::string::npos)
      << complaint(2, 4);
  write(1, 2, "2 2 0 1", {2, std::numeric_limits<float>::infinity()});
  EXPECT_NE(complaint(2, 4).find("element 3"), std::string::npos) << complaint(2, 4);
}

TEST_F(Parts, AMissingFileIsNamed) {
  write(0, 2, "0 2 0 1", {0, 1});
  EXPECT_NE(complaint(2, 2).find("part-00002-of-00002.safetensors is missing"), std::string::npos);
}

TEST_F(Parts, PlacesThatCannotBeAreRefused) {
  for (const char* places : {"", "x", "0 2", "0 2 0 1 5", "0 1 0 1", "0 3 0 1", "3 2 0 1", "-1 2 0 1",
                             "0 1 9 2", "0 1 -1 2", "0 0 1 2", "0 1 1 9223372036854775807",
                             "9223372036854775807 2 0 1", "0 1 9223372036854775807 2", "0 2 0 1 junk"}) {
    write(0, 1, places, {0, 1});
    EXPECT_NE(complaint(1, 4).find("the metadata do not say where"), std::string::npos)
        << places << ": " << complaint(1, 4);
  }
}

}  // namespace
}  // namespace rooflm::train
