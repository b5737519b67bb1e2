// The job that a command is a rank of: several processes that run one step together.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "lab/point.h"
#include "ranks/transport.h"

namespace rooflm::lab {

using Ranks = std::shared_ptr<ranks::Transport>;

/// Runs `body` with the transport of the job, nullptr for a single process. The other ranks learn what it
/// throws. Only rank 0 writes notes. Throws as ranks::join.
int run_in_job(const std::function<int(const Ranks&)>& body);

/// Gives the point its rank of the job, and its share of the host's threads where none are given. Throws
/// core::UsageError when the point's degrees do not make as many ranks as there are; devices that run nothing
/// need none.
void take_place(Point& point, const Ranks& ranks);

/// Gives a point that is not split its share of the host's threads where none are given.
void share_threads(Point& point, const Ranks& ranks);

/// For commands that need an unsplit step. Throws core::UsageError if a point is split and its device runs.
void require_one_rank(const std::vector<Point>& points);

/// Checks that values by name are the same on all ranks. Throws core::UsageError with the first difference.
/// All ranks call it; nothing where this process is alone.
void agree(const Ranks& ranks, const std::map<std::string, std::string>& values);
/// How many ranks use the device of this rank: 1, or more if ranks share GPUs (ranks::Place::shares_gpus),
/// which rank 0 then reports. Throws core::UsageError where ranks of one host would share a GPU and were not.
/// All ranks call it.
int agree_on_devices(const Ranks& ranks, const std::string& device);
/// "2 ranks take turns on cuda:0: results are correct, times are meaningless"
std::string sharing_sentence(int sharers, const std::string& device);
/// What decides the numbers of a run: its configuration, but for device and threads.
std::map<std::string, std::string> values_of(const Point& point);

/// Gives a backend that was made for the point the collectives of its rank; nothing where it is alone.
void join_backend(backends::Backend& backend, const Point& point, const Ranks& ranks);

}  // namespace rooflm::lab
