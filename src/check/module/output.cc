#include "check/module/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace weft::check {
namespace {

std::string place(const Frame& frame) {
  std::string out = frame.function.empty() ? "?" : frame.function;
  out += " (" + (frame.file.empty() ? std::string("?") : frame.file);
  if (frame.line != 0) out += ":" + std::to_string(frame.line);
  return out + ")";
}

std::string places(const std::vector<Frame>& frames, const char* joint) {
  std::string out;
  for (const Frame& frame : frames) out += (out.empty() ? "" : joint) + place(frame);
  return out.empty() ? "an unknown place" : out;
}

nlohmann::json as_list(const std::vector<Frame>& frames) {
  auto out = nlohmann::json::array();
  for (const Frame& frame : frames)
    out.push_back({{"function", frame.function}, {"file", frame.file}, {"line", frame.line}});
  return out;
}

}  // namespace

std::string as_text(const Placed& placed) {
  const Finding& finding = placed.finding;
  std::string out =
      "weft check: " + std::string(finding.rule) + " " + finding.call + ": " + finding.text + "\n";
  out += "  called at " + places(placed.frames, "\n         by ") + "\n";
  for (const PlacedNote& note : placed.notes)
    out += "  " + note.text + " at " + places(note.frames, ", by ") + "\n";
  return out;
}

std::string as_json(const Placed& placed) {
  auto notes = nlohmann::json::array();
  for (const PlacedNote& note : placed.notes)
    notes.push_back({{"text", note.text}, {"at", as_list(note.frames)}});
  const nlohmann::json out = {{"rule", placed.finding.rule},
                              {"call", placed.finding.call},
                              {"text", placed.finding.text},
                              {"at", as_list(placed.frames)},
                              {"notes", notes},
                              {"pid", getpid()}};
  // File names may hold any octets.
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Output::Output(const std::string& folder) : folder_(folder) {}

void Output::write(const Placed& placed) {
  int to = STDERR_FILENO;
  if (!folder_.empty()) {
    if (!file_) {
      const std::string name = folder_ + "/" + std::to_string(getpid()) + ".jsonl";
      file_ = os::Fd(open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    }
    if (file_) to = file_.get();
  }
  const std::string text = to == STDERR_FILENO ? as_text(placed) : as_json(placed);
  static_cast<void>(::write(to, text.data(), text.size()) == 0);
}

}  // namespace weft::check
