// `weft timeline`: reads what `weft run --timeline DIR` has written.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "timeline/picture.h"
#include "weft/command.h"
#include "weft/common/arguments.h"
#include "weft/common/message.h"
#include "weft/common/net.h"
#include "weft/common/read_all.h"
#include "weft/common/replace_file.h"
#include "weft/timeline/timeline_text.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

struct TimelineOptions {
  std::string folder;
  std::string output;
  std::string format;
  bool json = false;
};

// A FIFO does not block open(), and is no file of records. Nothing, with errno.
std::optional<std::string> read_file(const fs::path& path) {
  constexpr std::size_t kMost = 1U << 30U;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!fd || fstat(fd.get(), &about) != 0) return std::nullopt;
  if (S_ISREG(about.st_mode)) return read_all(fd.get(), kMost);
  errno = EINVAL;
  return std::nullopt;
}

Outcome<timeline::Story> read_story(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".weft") files.push_back(entry->path());
  }
  if (error) return failure(fmt::format("{}: {}", folder, error.message()));
  std::ranges::sort(files);
  timeline::Story story;
  for (const fs::path& path : files) {
    const auto octets = read_file(path);
    if (!octets) return failure(fmt::format("{}: {}", path.string(), std::strerror(errno)));
    const std::span file(reinterpret_cast<const std::uint8_t*>(octets->data()), octets->size());
    if (timeline::is_unfinished(file)) {
      say(fmt::format("{}: left out: its process ended before it had a header", path.string()));
      continue;
    }
    const auto wrong = add_file(story, file);
    if (wrong) return failure(fmt::format("{}: {}", path.string(), *wrong));
  }
  if (story.processes.empty()) {
    return failure(fmt::format(
        "{}: there is no record of weft run --timeline: did the program use verbs?", folder));
  }
  match(story);
  return story;
}

// Names of programs, hosts and ranks steer no terminal and begin no line.
void hide_controls_of(timeline::Story& story) {
  for (timeline::Process& one : story.processes) {
    for (std::string* text : {&one.rank, &one.host, &one.program}) {
      hide_controls(*text);
      std::ranges::replace(*text, '\n', '?');
    }
  }
}

Outcome<int> report(const TimelineOptions& o) {
  auto story = read_story(o.folder);
  if (!story) return tl::unexpected(story.error());
  if (!o.json) hide_controls_of(*story);
  const timeline::Clocks clocks(*story);
  if (o.json) {
    fmt::print("{}\n", timeline_json(*story, clocks)
                           .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", timeline_text(*story, clocks));
  }
  return kExitOk;
}

Outcome<int> convert(const TimelineOptions& o) {
  const auto story = read_story(o.folder);
  if (!story) return tl::unexpected(story.error());
  const timeline::Picture picture = picture_of(*story, timeline::Clocks(*story));
  const bool json =
      o.format.empty() ? fs::path(o.output).extension() == ".json" : o.format == "json";
  const std::string trace = json ? as_json(picture) : as_perfetto(picture);
  if (replace_file(o.output, trace)) return kExitOk;
  return failure(fmt::format("{}: {}", o.output, std::strerror(errno)));
}

}  // namespace

void add_timeline(Arguments& app) {
  auto options = std::make_shared<TimelineOptions>();
  Arguments* command = app.add_subcommand(
      "timeline", "Show where the requests of `weft run --timeline` spent their time");
  command->require_subcommand(1, 1);
  const auto add_folder = [&](Arguments& to) {
    to.add_option("folder", options->folder, "That of `weft run --timeline DIR`")
        .type_name("DIR")
        .required();
  };
  Arguments* shown = command->add_subcommand(
      "report", "Print what each process waited for, the longest wait first");
  add_folder(*shown);
  shown->add_flag("--json", options->json, "Print a JSON object");
  when_chosen(*shown, [options] { return report(*options); });
  Arguments* converted =
      command->add_subcommand("convert", "Write a picture for https://ui.perfetto.dev");
  add_folder(*converted);
  converted->add_option("output", options->output, "The file to write")
      .type_name("FILE")
      .required();
  converted
      ->add_option("--format", options->format,
                   "perfetto, or json (Chrome's, for short ones). Default: json for a FILE that "
                   "ends in .json, else perfetto")
      .type_name("FORMAT")
      .one_of({"perfetto", "json"});
  when_chosen(*converted, [options] { return convert(*options); });
}

}  // namespace weft::cli
