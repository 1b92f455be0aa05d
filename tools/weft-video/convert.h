// Films in other formats, decoded once by ffmpeg.
#pragma once

#include <string>
#include <vector>

#include "store/outcome.h"

namespace weft::tv {

// Replaces each file that is no film by a YUV4MPEG2 file in a folder of its own, which goes with
// the object.
class Converted {
 public:
  Converted() = default;
  ~Converted();
  Converted(const Converted&) = delete;
  Converted& operator=(const Converted&) = delete;

  //   ENOENT   no ffmpeg
  //   EINVAL   ffmpeg cannot read the file; its own message is on stderr
  [[nodiscard]] store::Outcome<void> convert(std::vector<std::string>& files);

 private:
  [[nodiscard]] store::Outcome<std::string> decode(const std::string& file);
  std::string folder_;
};

}  // namespace weft::tv
