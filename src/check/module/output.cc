#include "check/module/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "os/guest_output.h"
#include "os/sigpipe.h"

namespace weft::check {
namespace {

std::string place(const Frame& frame) {
  std::string out = frame.function.empty() ? "?" : frame.function;
  out += " (" + (frame.file.empty() ? std::string("?") : frame.file);
  if (frame.line != 0) out += ":" + std::to_string(frame.line);
  return out + ")";
}

nlohmann::json as_list(const std::vector<Frame>& frames) {
  auto out = nlohmann::json::array();
  for (const Frame& frame : frames)
    out.push_back({{"function", frame.function}, {"file", frame.file}, {"line", frame.line}});
  return out;
}

}  // namespace

bool put(int fd, const std::string& text) {
  if (!os::fits(fd, text.size())) {
    errno = EFBIG;
    return false;
  }
  const ssize_t done = os::without_sigpipe([&] {
    ssize_t taken = 0;
    do {
      taken = ::write(fd, text.data(), text.size());
    } while (taken < 0 && errno == EINTR);
    return taken;
  });
  return done == static_cast<ssize_t>(text.size());
}

std::vector<std::string> as_strings(const std::vector<Frame>& frames) {
  std::vector<std::string> out;
  for (const Frame& frame : frames) out.push_back(place(frame));
  return out;
}

std::string places(const std::vector<Frame>& frames, const char* joint) {
  std::string out;
  for (const Frame& frame : frames) out += (out.empty() ? "" : joint) + place(frame);
  return out.empty() ? "an unknown place" : out;
}

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

Output::Named Output::named_by(int fd) {
  struct stat is {};
  if (fstat(fd, &is) != 0) return {};
  return {is.st_dev, is.st_ino};
}

Output::Output(const std::string& folder) : folder_(folder) { static_cast<void>(os::may_say()); }

int Output::report_file() {
  if (folder_.empty()) return -1;
  if (file_ && named_by(file_.get()) != is_) static_cast<void>(file_.release());
  if (!file_) {
    const std::string name = folder_ + "/" + std::to_string(getpid()) + ".jsonl";
    file_ = os::Fd(open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    is_ = named_by(file_.get());
  }
  return file_.get();
}

void Output::begin_anew() {
  if (file_ && named_by(file_.get()) != is_) static_cast<void>(file_.release());
  file_.reset();
}

void Output::write(const Placed& placed) {
  const int file = report_file();
  if (file >= 0 && put(file, as_json(placed))) return;
  if (os::may_say()) static_cast<void>(put(STDERR_FILENO, as_text(placed)));
}

}  // namespace weft::check
