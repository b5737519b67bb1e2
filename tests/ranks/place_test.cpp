// Which rank a process is, from the environment of whoever started it.
#include "ranks/place.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "core/error.h"

namespace rooflm::ranks {
namespace {

class Places : public testing::Test {
 protected:
  static Place find(const std::map<std::string, std::string>& variables) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
          "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
          "SLURM_NTASKS_PER_NODE", "ROOFLM_JOB", "ROOFLM_LISTENER", "ROOFLM_TIMEOUT"}) {
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    return find_place();
  }
};

TEST_F(Places, AreKnownFromEachStarter) {
  const Place alone = find({});
  EXPECT_EQ(alone.size, 1);
  EXPECT_EQ(alone.carrier, Carrier::nobody);
  const Place launched = find({{"RANK", "3"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "node1"},
                               {"MASTER_PORT", "1234"},
                               {"ROOFLM_TIMEOUT", "7"}});
  EXPECT_EQ(launched.rank, 3);
  EXPECT_EQ(launched.size, 4);
  EXPECT_EQ(launched.local_rank, 1);
  EXPECT_EQ(launched.local_size, 2);
  EXPECT_EQ(launched.address, "node1");
  EXPECT_EQ(launched.port, 1234);
  EXPECT_EQ(launched.patience_s, 7);
  EXPECT_EQ(launched.carrier, Carrier::sockets);
  EXPECT_EQ(find({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}).carrier, Carrier::mpi);
  const Place step = find({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"MASTER_ADDR", "node1"}});
  EXPECT_EQ(step.rank, 5);
  EXPECT_EQ(step.carrier, Carrier::sockets);
}

/// A batch script of Slurm has these variables, too, and is no rank.
TEST_F(Places, AScriptOfSlurmIsAlone) {
  EXPECT_EQ(find({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).size, 1);
}

TEST_F(Places, RefuseWhatCannotBe) {
  EXPECT_THROW(find({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), core::UsageError);
  EXPECT_THROW(find({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), core::UsageError);
  EXPECT_THROW(find({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), core::UsageError);
  EXPECT_THROW(find({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}), core::UsageError);
  find({});
}

}  // namespace
}  // namespace rooflm::ranks
