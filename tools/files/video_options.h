// The command line of weft-video.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "files/data_places.h"
#include "files/server/server_shared.h"
#include "files/video/player.h"
#include "files/video/screen.h"

namespace weft::tv {

struct ShowCommand {
  std::vector<std::string> films;
  video::PlayOptions play;
  video::WindowOptions window;
  video::HeadlessOptions headless;
  bool is_headless = false;
  bool hold = false;
  bool json = false;
  bool fast = false;
};

struct MakeCommand {
  std::string file;
  std::string size = "1280x720";
  std::string rate = "35";
  std::uint64_t frames = 350;
};

struct Command {
  enum class Kind : std::uint8_t { kNone, kServe, kShow, kMake };
  Kind kind = Kind::kNone;
  files::ServeOptions serve;
  data::ListenOptions listen;
  int announce_fd = -1;
  std::string token_file;
  data::PortOption port;
  ShowCommand show;
  MakeCommand make;
};

// Reads the command line; on wrong usage or --help prints what is to be said and sets `exit_code`.
[[nodiscard]] bool parse(int argc, char** argv, Command& command, int& exit_code);

}  // namespace weft::tv
