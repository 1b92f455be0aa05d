// Test films: `weft video make`.
#pragma once

#include <string>

#include "files/video_options.h"
#include "weft/command.h"

namespace weft::tv {

// The name of the film, which is there once it is whole: what has the name already is replaced in
// one step. A pipe or device is written to as it is. SIGINT, SIGTERM and SIGHUP end it, and nothing
// is left of it then. On the first thread.
[[nodiscard]] cli::Outcome<std::string> make_film_file(const MakeCommand& command);

}  // namespace weft::tv
