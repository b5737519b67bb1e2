// rooflm view: the report page of records, in a browser.
#include <fmt/format.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/record_arguments.h"
#include "cli/report_output.h"
#include "core/cache_file.h"
#include "core/error.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

/// Where the page lies, so that a browser can load it again: one for each name of a record.
fs::path page_of(const fs::path& record) {
  const fs::path cache = core::cache_folder();
  if (cache.empty())
    throw core::InputError(
        "neither XDG_CACHE_HOME nor HOME says where a page can be kept: use report --html FILE");
  const fs::path folder = cache / "pages";
  make_folder(folder);
  return folder / fmt::format("{}.html", record.filename().string());
}

/// The first program of $BROWSER, else the desktop's.
std::string browser() {
  const char* const set = std::getenv("BROWSER");
  const std::string_view programs = set == nullptr ? "" : set;
  const std::string first(programs.substr(0, programs.find(':')));
  return first.empty() ? "xdg-open" : first;
}

/// Starts a program that outlives this one, without its output. Whether there is such a program.
bool start(const std::string& program, const std::string& argument) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  if (posix_spawn_file_actions_init(&files) != 0) return false;
  if (posix_spawnattr_init(&attributes) != 0) return false;
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&files, descriptor, "/dev/null", descriptor == 0 ? 0 : 1, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  std::string name = program;
  std::string page = argument;
  const std::vector<char*> words = {name.data(), page.data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, name.c_str(), &files, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return failed == 0;
}

int run(const std::vector<std::string>& files) {
  if (files.empty()) throw core::UsageError("view: name one or more records: rooflm view FILE...");
  const RecordArguments records(files);
  ReportRequest request;
  request.records = records.paths();
  request.html = page_of(request.records.front());
  request.overwrite = true;
  show_request(request);
  const std::string program = browser();
  if (!start(program, request.html.string()))
    note("there is no {} here: open the page in any browser, on any machine", program);
  return 0;
}

}  // namespace

Body declare_view(CommandLine& line) {
  auto files = std::make_shared<std::vector<std::string>>();
  line.add_option("file", *files, "Run records; - is standard input").type_name("FILE").required();
  line.footer(
      "Writes the report page to ~/.cache/rooflm/pages (XDG_CACHE_HOME) and opens it\n"
      "with the program that BROWSER names, or with xdg-open. `report --html FILE`\n"
      "writes it elsewhere.\n\n"
      "Example: rooflm view a.rooflm");
  return [files] { return run(*files); };
}

}  // namespace rooflm::cli
