// The first page of a folder of studies.
#include "report/page/study_index.h"

#include <fmt/format.h>

#include "report/charts/svg_frame.h"

namespace rooflm::report {
namespace {

constexpr const char* kHead = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Studies of this machine</title>
<style>
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem; }
h2 { font-size: 1.1rem; margin: 1.5rem 0 0.25rem; }
p { margin: 0.25rem 0; }
.question { font-style: italic; }
</style>
</head>
<body>
<main>
<h1>Studies of this machine</h1>
)html";
constexpr const char* kTail = "</main>\n</body>\n</html>\n";

}  // namespace

std::string study_index(std::span<const StudyEntry> entries) {
  std::string page = kHead;
  for (const StudyEntry& entry : entries) {
    const std::string title = xml_text(entry.title);
    const std::string name = xml_text(entry.name);
    const bool ran = entry.problem.empty();
    page += ran ? fmt::format("<h2><a href=\"{}.html\">{}</a></h2>\n", name, title)
                : fmt::format("<h2>{}</h2>\n", title);
    page += fmt::format("<p class=\"question\">{}</p>\n", xml_text(entry.question));
    if (!entry.answer.empty()) page += fmt::format("<p>{}</p>\n", xml_text(entry.answer));
    if (ran) {
      page += fmt::format("<p><a href=\"{0}.rooflm\">{0}.rooflm</a></p>\n", name);
    } else {
      page += fmt::format("<p>Not run here: {}</p>\n", xml_text(entry.problem));
    }
  }
  return page + kTail;
}

}  // namespace rooflm::report
