// rooflm launch: the ranks of a job on this host.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/stop_signals.h"
#include "core/system/child_process.h"
#include "core/system/descriptor.h"
#include "ranks/last_words.h"
#include "ranks/place.h"
#include "ranks/proof.h"
#include "ranks/transport.h"

namespace rooflm::cli {
namespace {

/// How long ranks have to notice that one has ended, and to say so; and to end when they are asked to.
constexpr double kNoticeSeconds = 3, kGraceSeconds = 5;
/// Between two looks at ranks.
constexpr double kLookSeconds = 1;

struct LaunchOptions {
  std::string ranks, timeout = fmt::format("{}", ranks::Place::kPatienceSeconds);
  bool shares_gpus = false;
  std::vector<std::string> command;
};

/// Where rank 0 will listen: bound here, so that no other program takes the port before.
struct Listener {
  core::Descriptor socket;
  int port = 0;
};

Listener listen_here(int ranks) {
  Listener listener{.socket = core::Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const int fd = listener.socket.get();
  constexpr int kStrangers = 64;  // others of this host that come before the ranks
  if (fd < 0 || ::bind(fd, generic, length) != 0 || ::listen(fd, ranks + kStrangers) != 0 ||
      ::getsockname(fd, generic, &length) != 0) {
    throw core::Unavailable(fmt::format("launch cannot listen on this host: {}", std::strerror(errno)));
  }
  listener.port = ntohs(address.sin_port);
  return listener;
}

bool is_of_ranks(const std::string& word) {
  return std::ranges::find(kCommandsOfRanks, word) != kCommandsOfRanks.end();
}

/// `train ...` is this program's command; what is none of its commands is a program.
std::vector<std::string> program_of(const LaunchOptions& options) {
  std::vector<std::string> words = options.command;
  const std::string& first = words.front();
  const bool is_own = std::ranges::any_of(commands(), [&](const Command& c) { return c.name == first; });
  if (is_own && !is_of_ranks(first))
    throw core::UsageError(fmt::format("launch: {} runs on one rank only; these run on several: {}", first,
                                       fmt::join(kCommandsOfRanks, ", ")));
  if (is_own) words.insert(words.begin(), std::filesystem::read_symlink("/proc/self/exe").string());
  return words;
}

bool has_failed(const core::ChildEnd& end) {
  return end.signal != 0 ||
         (end.code != 0 && end.code != core::stopped_code(SIGINT) && end.code != core::stopped_code(SIGTERM));
}

int code_of(const core::ChildEnd& end) { return end.signal != 0 ? core::stopped_code(end.signal) : end.code; }

std::string describe(const core::ChildEnd& end) {
  if (end.signal == 0) return fmt::format("ended with exit code {}", end.code);
  const char* name = ::sigabbrev_np(end.signal);
  const std::string signal = name == nullptr ? std::to_string(end.signal) : fmt::format("SIG{}", name);
  const char* perhaps = end.signal == SIGKILL ? " (the system also does this when memory runs out)" : "";
  return fmt::format("was ended by {}{}", signal, perhaps);
}

/// Whether a signal has stopped the process, as proc_pid_stat(5) tells.
bool is_stopped(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(") ");
  return name_end != std::string::npos && line.substr(name_end + 2).starts_with('T');
}

class Launch {
 public:
  Launch(const LaunchOptions& options, int count)
      : count_(count), timeout_s_(parse_number("--timeout", options.timeout, 0.1)) {
    const std::vector<std::string> program = program_of(options);
    const Listener listener = listen_here(count);
    const std::string job = ranks::make_key();
    for (int rank = 0; rank < count; ++rank) {
      std::vector<std::pair<std::string, std::string>> variables = {
          {"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(count)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(count)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(listener.port)},
          {"ROOFLM_JOB", job},
          {"ROOFLM_LAUNCHED", "1"},
          {"ROOFLM_TIMEOUT", options.timeout},
          words_.variable()};
      if (options.shares_gpus) variables.emplace_back("ROOFLM_SHARE_GPUS", "1");
      std::vector<int> kept{words_.descriptor()};
      if (rank == 0) {
        kept.push_back(listener.socket.get());
        variables.emplace_back("ROOFLM_LISTENER", std::to_string(listener.socket.get()));
      }
      children_.start(program, variables, kept);
    }
    is_ours_ = is_of_ranks(options.command.front());
  }

  /// The exit code of the first rank that failed, of one that was stopped, or 0.
  int wait() {
    constexpr double kForEver = 1e6;
    while (children_.running() > 0) {
      const auto ended = children_.wait(is_ours_ ? std::min(kLookSeconds, timeout_s_) : kForEver);
      if (!ended && is_ours_) end_stopped();
      if (!ended) continue;
      if (has_failed(ended->end)) {
        tell_of(cause_among({*ended}));
        end_others();
      } else if (ended->end.code != 0) {
        code_ = ended->end.code;
      }
    }
    // Of ranks that were asked to stop, and of any that ended while others went on as if nothing were wrong.
    if (!has_told_ && !words_.read().empty()) write_message("launch: " + words_.read().front().second);
    return code_;
  }

 private:
  using Ended = core::ChildProcesses::Ended;

  /// Ranks notice by themselves that one has ended, and may be done before it is seen here: of those that end
  /// now the cause is one that a signal ended, or that failed otherwise than by losing another; of those that
  /// have only lost another the first that said so.
  Ended cause_among(std::vector<Ended> ended) {
    wait_for_all(kNoticeSeconds, &ended);
    const auto rank = [](const Ended& each) {
      if (each.end.signal != 0) return 0;
      if (!has_failed(each.end)) return 3;
      return each.end.code == static_cast<int>(core::ExitCode::unavailable) ? 2 : 1;
    };
    const auto cause = std::ranges::min_element(ended, {}, rank);
    for (const auto& words : words_.read()) {
      const auto speaker = std::ranges::find(ended, words.first, &Ended::index);
      if (speaker != ended.end() && rank(*speaker) == rank(*cause)) return *speaker;
    }
    return *cause;
  }

  /// The one line that is said of a job that fails: the rank that is the cause, what happened to it, and what
  /// it said itself; where it could say nothing, what the first of the others said of it, or the first at
  /// all.
  void say(std::size_t rank, const std::string& what) {
    const auto words = words_.read();
    const auto own = std::ranges::find(words, rank, &std::pair<std::size_t, std::string>::first);
    std::string said;
    if (own != words.end()) {
      const std::size_t name_end = own->second.find(')');  // "rank 1 (host): ..."
      const std::size_t begin = own->second.find_first_not_of("): ", name_end);
      said = ": " + own->second.substr(std::min(begin, own->second.size()));
    } else if (!words.empty()) {
      // Others may have missed one that waited for this rank, and have said so earlier.
      const auto misses = [name = fmt::format("rank {} (", rank)](const auto& each) {
        return each.second.find(name) != std::string::npos;
      };
      const auto found = std::ranges::find_if(words, misses);
      said = "; " + (found != words.end() ? *found : words.front()).second;
    }
    write_message(fmt::format("launch: rank {} ({}, process {}) {}{}", rank, ranks::host_name(),
                              children_.number(rank), what, said));
    has_told_ = true;
  }

  /// One that has given up another may have done so for one that is stopped: that is the cause then.
  void tell_of(const Ended& cause) {
    const bool has_given_up =
        is_ours_ && cause.end.signal == 0 && cause.end.code == static_cast<int>(core::ExitCode::unavailable);
    if (has_given_up && tell_of_stopped(0)) return;
    say(cause.index, describe(cause.end));
    code_ = code_of(cause.end);
  }

  /// Tells of the first rank that has been stopped for at least `seconds`, as far as looking has shown.
  bool tell_of_stopped(double seconds) {
    const auto now = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < static_cast<std::size_t>(count_); ++i) {
      if (!is_stopped(children_.number(i))) {
        stopped_since_.erase(i);
        continue;
      }
      const double stopped_s =
          std::chrono::duration<double>(now - stopped_since_.emplace(i, now).first->second).count();
      if (stopped_s < seconds) continue;
      say(i, fmt::format("has been stopped for {:.0f} s", stopped_s));
      code_ = static_cast<int>(core::ExitCode::unavailable);
      return true;
    }
    return false;
  }

  /// Ends all when one has been stopped for longer than ranks wait for each other: the others may have ended
  /// before, be stopped, too, or know nothing of it.
  void end_stopped() {
    if (tell_of_stopped(timeout_s_ + kNoticeSeconds)) end_others();
  }

  /// Those that still run are asked to end, and ended.
  void end_others() {
    if (children_.running() == 0) return;
    children_.send(SIGCONT);
    children_.send(SIGTERM);
    wait_for_all(kGraceSeconds);
    if (const std::size_t stuck = children_.running(); stuck > 0) {
      write_message(
          fmt::format("launch: {} of {} ranks did not end by themselves and were killed", stuck, count_));
      children_.send(SIGKILL);
      wait_for_all(kGraceSeconds);
    }
  }

  void wait_for_all(double seconds, std::vector<Ended>* all = nullptr) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (children_.running() > 0) {
      const double left = std::chrono::duration<double>(until - std::chrono::steady_clock::now()).count();
      const auto ended = left > 0 ? children_.wait(left) : std::nullopt;
      if (!ended) return;
      if (all != nullptr) all->push_back(*ended);
    }
  }

  int count_;
  double timeout_s_;
  bool is_ours_ = false;
  int code_ = 0;
  bool has_told_ = false;
  ranks::LastWords words_;
  std::map<std::size_t, std::chrono::steady_clock::time_point> stopped_since_;  ///< by rank
  core::ChildProcesses children_;
};

int run(const LaunchOptions& options) {
  constexpr std::int64_t kMost = 4096;
  if (options.command.empty())
    throw core::UsageError("launch: name a command: rooflm launch -n 2 -- train ...");
  if (options.ranks.empty()) throw core::UsageError("-n is missing: how many ranks to start");
  const std::int64_t count = parse_integer("-n", options.ranks, 1);
  if (count > kMost) throw core::UsageError(fmt::format("-n {}: at most {} ranks on a host", count, kMost));
  return Launch(options, static_cast<int>(count)).wait();
}

}  // namespace

Body declare_launch(CommandLine& line) {
  auto options = std::make_shared<LaunchOptions>();
  line.add_rest(options->command);
  line.add_option("-n,--ranks", options->ranks, "Ranks to start on this host").type_name("N");
  line.add_option("--timeout", options->timeout,
                  "Seconds that a rank waits for another before it reports it as hanging")
      .type_name("S")
      .show_default();
  line.add_flag("--share-gpus", options->shares_gpus,
                "Let several ranks share a GPU, in turn: results are correct, times are meaningless");
  line.footer(
      "rooflm launch -n N -- COMMAND...\n\n"
      "COMMAND is bench, profile, train, eval, generate or comm with their options, or\n"
      "any program. Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,\n"
      "MASTER_ADDR and MASTER_PORT; --device cuda is the GPU of its LOCAL_RANK. Signals\n"
      "are forwarded to all ranks. If a rank fails, all others are stopped within 30 s,\n"
      "a line says which one failed and why, and its exit code becomes that of launch.\n"
      "mpirun and srun start the same commands on several hosts (docs/multi_device.md).\n\n"
      "Example: rooflm launch -n 2 -- bench --model tiny --zero 1");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
