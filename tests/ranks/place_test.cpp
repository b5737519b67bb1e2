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
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_LOCALID",
                             "SLURM_NTASKS_PER_NODE",
                             "SLURM_STEP_NODELIST",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_JOB_ID",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "MPI_LOCALRANKID",
                             "MPI_LOCALNRANKS",
                             "SLURM_STEP_ID",
                             "TORCHELASTIC_RUN_ID",
                             "PMIX_NAMESPACE",
                             "ROOFLM_JOB",
                             "ROOFLM_LAUNCHED",
                             "ROOFLM_LISTENER",
                             "ROOFLM_TIMEOUT",
                             "ROOFLM_SHARE_GPUS"}) {
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
                               {"ROOFLM_JOB", "secret"},
                               {"ROOFLM_TIMEOUT", "7"},
                               {"ROOFLM_SHARE_GPUS", "1"}});
  EXPECT_EQ(launched.rank, 3);
  EXPECT_EQ(launched.size, 4);
  EXPECT_EQ(launched.local_rank, 1);
  EXPECT_EQ(launched.local_size, 2);
  EXPECT_EQ(launched.address, "node1");
  EXPECT_EQ(launched.port, 1234);
  EXPECT_EQ(launched.patience_s, 7);
  EXPECT_TRUE(launched.shares_gpus);
  EXPECT_FALSE(alone.shares_gpus) << "off unless all are told";
  EXPECT_EQ(launched.carrier, Carrier::sockets);
  EXPECT_EQ(find({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}).carrier, Carrier::mpi);
  const Place step =
      find({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}, {"MASTER_ADDR", "node1"}});
  EXPECT_EQ(step.rank, 5);
  EXPECT_EQ(step.carrier, Carrier::sockets);
}

/// Nothing but srun: where the first rank is says the list of nodes.
TEST_F(Places, SrunAloneIsEnough) {
  const std::map<std::string, std::string> step = {{"SLURM_PROCID", "5"},
                                                   {"SLURM_NTASKS", "8"},
                                                   {"SLURM_STEP_NUM_TASKS", "8"},
                                                   {"SLURM_JOB_ID", "12345"},
                                                   {"SLURM_STEP_NODELIST", "node[07-08]"}};
  const Place found = find(step);
  EXPECT_EQ(found.carrier, Carrier::sockets);
  EXPECT_EQ(found.address, "node07");
  EXPECT_EQ(found.port, 22345);
  auto told = step;
  told["MASTER_ADDR"] = "login";
  told["MASTER_PORT"] = "29500";
  EXPECT_EQ(find(told).address, "login");
  EXPECT_EQ(find(told).port, 29500);
  auto shell = step;  // of one task, in a job of eight
  shell["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_EQ(find(shell).size, 1);
}

TEST_F(Places, TheFirstHostOfAList) {
  EXPECT_EQ(first_host("a1"), "a1");
  EXPECT_EQ(first_host("a1,a2"), "a1");
  EXPECT_EQ(first_host("node[03-05,9],login1"), "node03");
  EXPECT_EQ(first_host("node[9]"), "node9");
  EXPECT_EQ(first_host("rack[1-2]n[07,9].cluster,x"), "rack1n07.cluster");
  EXPECT_EQ(first_host("node[3"), "node3");
  EXPECT_EQ(first_host(""), "");
}

TEST_F(Places, MpiexecOfMpichNeedsAnAddress) {
  const std::map<std::string, std::string> rank = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  EXPECT_THROW(find(rank), core::UsageError);
  auto told = rank;
  told["MASTER_ADDR"] = "node1";
  told["PMIX_NAMESPACE"] = "job-1";
  EXPECT_EQ(find(told).carrier, Carrier::sockets);
  EXPECT_EQ(find(told).rank, 1);
  EXPECT_EQ(find({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).carrier, Carrier::nobody);
}

/// Ranks over sockets always have a key: a secret one, or the name that their starter gave to the job.
TEST_F(Places, NoJobIsWithoutAKey) {
  const std::map<std::string, std::string> by_hand = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  const auto key_of = [&](std::map<std::string, std::string> more) {
    more.insert(by_hand.begin(), by_hand.end());
    return find(more).job;
  };
  try {
    find(by_hand);
    FAIL() << "a job that everybody may join";
  } catch (const core::UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("ROOFLM_JOB"), std::string::npos);
  }
  EXPECT_THROW(key_of({{"ROOFLM_JOB", ""}}), core::UsageError);
  EXPECT_EQ(key_of({{"ROOFLM_JOB", "secret"}, {"TORCHELASTIC_RUN_ID", "7"}}), "secret");
  EXPECT_EQ(key_of({{"TORCHELASTIC_RUN_ID", "7"}, {"SLURM_JOB_ID", "8"}}), "torchrun 7");
  EXPECT_EQ(key_of({{"SLURM_JOB_ID", "8"}, {"SLURM_STEP_ID", "2"}}), "slurm 8.2");
  EXPECT_EQ(key_of({{"PMIX_NAMESPACE", "a"}}), "pmix a");
  EXPECT_FALSE(find({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).is_launched) << "alone, and needs no key";
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
  EXPECT_THROW(find({{"ROOFLM_SHARE_GPUS", "yes"}}), core::UsageError);
  find({});
}

}  // namespace
}  // namespace rooflm::ranks
