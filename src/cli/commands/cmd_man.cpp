// `rooflm man`: manual pages (man(7) macros), made from what the commands declare.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "core/error.h"
#include "core/file.h"
#include "core/names.h"

namespace rooflm::cli {
namespace {

/// Text as roff takes it: no line may begin with a control character, hyphens stay hyphens, and a line may
/// end after one of several words to choose from.
std::string roff(std::string_view text) {
  std::string out;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '|') {
      out += "|\\:";
    } else {
      out += c;
    }
    at_start = c == '\n';
  }
  return out;
}

/// "rooflm-data-prepare", the name of the page.
std::string page_of(const std::string& command) {
  std::string name = "rooflm-" + command;
  for (char& c : name) {
    if (c == ' ') c = '-';
  }
  return name;
}

std::string heading(const std::string& page, std::string_view summary) {
  // Lists of names have no spaces to widen: nothing is justified.
  return fmt::format(".TH {} 1 \"\" \"rooflm {}\" \"rooflm\"\n.ad l\n.SH NAME\n{} \\- {}\n", roff(page),
                     ROOFLM_VERSION, roff(page), roff(summary));
}

std::string option_text(const Declared& option) {
  std::string name;
  for (const std::string& each : option.names) name += (name.empty() ? "" : ", ") + each;
  if (name.empty()) name = option.positional;
  std::string text = fmt::format(".TP\n\\fB{}\\fR", roff(name));
  if (!option.type.empty()) text += fmt::format(" \\fI{}\\fR", roff(option.type));
  text += "\n" + roff(option.help);
  const bool has_default = !option.fallback.empty() && !option.type.empty();
  return text + (has_default ? fmt::format(" (default: {})\n", roff(option.fallback)) : "\n");
}

std::string page_text(const Command& command, Offer offer) {
  CommandLine line(command.name, command.summary, offer);
  CommonOptions common;
  (void)declare(command, line, common);
  std::string text = heading(page_of(command.name), command.summary);
  std::string usage = fmt::format("\\fBrooflm {}\\fR [\\fIOPTIONS\\fR]", roff(command.name));
  std::vector<std::string> groups;
  for (const Declared& option : line.declared()) {
    if (!option.positional.empty()) usage += fmt::format(" \\fI{}\\fR", roff(option.positional));
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) groups.push_back(option.group);
  }
  text += ".SH SYNOPSIS\n" + usage + "\n.SH OPTIONS\n";
  for (const std::string& group : groups) {
    if (group != "Options") text += fmt::format(".SS {}\n", roff(group));
    for (const Declared& option : line.declared()) {
      if (option.group == group) text += option_text(option);
    }
  }
  if (const std::string footer = line.footer(); !footer.empty()) {
    text += ".SH NOTES\n.nf\n" + roff(footer) + "\n.fi\n";
  }
  return text + ".SH EXIT STATUS\n" + roff(kExitCodes) + ".SH SEE ALSO\n\\fBrooflm\\fR(1)\n";
}

std::string overview() {
  std::string text = heading("rooflm", "runs, profiles, prices and scales LLM training steps");
  text += ".SH SYNOPSIS\n\\fBrooflm\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH COMMANDS\n";
  for (const Command& command : commands()) {
    text += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(page_of(command.name)), roff(command.summary));
  }
  return text + ".SH EXIT STATUS\n" + roff(kExitCodes);
}

struct ManOptions {
  std::vector<std::string> command;
  std::string folder;
  bool overwrite = false, dry_run = false;
};

int write_all(const std::filesystem::path& folder, bool overwrite, bool is_dry_run) {
  if (!is_dry_run) std::filesystem::create_directories(folder);
  std::map<std::filesystem::path, std::string> pages{{folder / "rooflm.1", overview()}};
  for (const Command& command : commands()) {
    pages.emplace(folder / (page_of(command.name) + ".1"), page_text(command, Offer::anywhere));
  }
  std::vector<OutputPath> outputs;
  for (const auto& [path, text] : pages) outputs.push_back({"-o", path});
  if (is_dry_run) {
    show_dry_run("write manual pages", outputs);
    return 0;
  }
  check_outputs(outputs, {}, overwrite);
  for (const auto& [path, text] : pages) core::write_file_atomically(path, text);
  return 0;
}

int run(const ManOptions& options) {
  if (!options.folder.empty()) {
    if (!options.command.empty()) throw core::UsageError("man: -o writes all pages; leave the command out");
    return write_all(options.folder, options.overwrite, options.dry_run);
  }
  const std::string wanted = fmt::format("{}", fmt::join(options.command, " "));
  if (wanted.empty()) {
    write_out(overview());
    return 0;
  }
  std::vector<std::string> known;
  for (const Command& command : commands()) {
    known.push_back(command.name);
    if (command.name != wanted) continue;
    write_out(page_text(command, Offer::here));
    return 0;
  }
  throw core::UsageError(core::unknown_name("command", wanted, known));
}

}  // namespace

Body declare_man(CommandLine& line) {
  auto options = std::make_shared<ManOptions>();
  line.add_option("command", options->command, "Command (default: the page that lists all commands)")
      .type_name("COMMAND");
  line.add_option("-o,--output", options->folder, "Write all pages into this folder: FOLDER/rooflm-bench.1")
      .type_name("DIR");
  line.add_flag("--overwrite", options->overwrite, "Overwrite existing pages");
  add_dry_run(line, options->dry_run, "");
  line.footer("Example: rooflm man bench | man -l -");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
