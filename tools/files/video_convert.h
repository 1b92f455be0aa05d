// Films in other formats, decoded once by ffmpeg.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "files/protocol/outcome.h"

namespace weft::tv {

// Replaces each file that is no film by a YUV4MPEG2 file in a folder of its own, which goes with
// the object. So that it does go, SIGINT, SIGTERM and SIGHUP are blocked as long as the object
// lives, but for a server that handles them. One object at a time, on the first thread.
class Converted {
 public:
  Converted();
  ~Converted();
  Converted(const Converted&) = delete;
  Converted& operator=(const Converted&) = delete;

  // Nothing is converted where two would have one name.
  //   EEXIST   they would
  //   ENOENT   no ffmpeg
  //   EINVAL   it is no regular file, or ffmpeg cannot read it; its own message is on stderr
  //   EINTR    a signal has ended the conversion
  [[nodiscard]] files::Outcome<void> convert(std::vector<std::string>& files);

 private:
  [[nodiscard]] files::Outcome<std::string> decode(const std::string& file);
  std::string folder_;
  sigset_t before_{};  // signals that were blocked
};

}  // namespace weft::tv
