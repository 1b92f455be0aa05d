// In the place of window.cc where SDL2 is not to be had.
#include "files/video/screen.h"

namespace weft::video {

files::Outcome<std::unique_ptr<Screen>> open_window(const std::vector<Film>& films,
                                                    const WindowOptions& options) {
  static_cast<void>(films);
  static_cast<void>(options);
  return files::failed(ENOTSUP, "no window",
                       "this program was built without SDL2 (Debian: libsdl2-dev); use --headless");
}

}  // namespace weft::video
