// Where findings go: a file of the report folder, or stderr.
#pragma once

#include <sys/types.h>

#include <string>

#include "check/check_rules.h"
#include "check/module/frames.h"
#include "os/fd.h"
#include "os/guest_output.h"

namespace weft::check {

struct PlacedNote {
  std::string text;
  std::vector<Frame> frames;
};

// A finding with its places.
struct Placed {
  Finding finding;
  std::vector<Frame> frames;
  std::vector<PlacedNote> notes;
};

class Output {
 public:
  // `folder`: of the report; empty: stderr.
  explicit Output(const std::string& folder);

  // Each finding leaves with one system call: a process that is killed has reported what it found.
  void write(const Placed& placed);
  // In a child of fork(): it has a file of its own.
  void begin_anew();

 private:
  // The file behind a descriptor. Programs close descriptors that are not theirs, and get the
  // numbers for their own files.
  struct Named {
    dev_t device = 0;
    ino_t file = 0;
    bool operator==(const Named&) const = default;
  };
  static Named named_by(int fd);
  [[nodiscard]] int report_file();  // -1: none

  const std::string folder_;
  os::Fd file_;  // opened with the first finding
  Named is_;     // and what that is
};

using os::tell_user;

// Writes with one system call. False: it is not there, or not whole.
[[nodiscard]] bool put(int fd, const std::string& text);

// "main (client.c:20)" of each, and all of them in one text.
[[nodiscard]] std::vector<std::string> as_strings(const std::vector<Frame>& frames);
[[nodiscard]] std::string places(const std::vector<Frame>& frames, const char* joint);
// As lines for a reader.
[[nodiscard]] std::string as_text(const Placed& placed);
// As one line of JSON.
[[nodiscard]] std::string as_json(const Placed& placed);

}  // namespace weft::check
