// Shows films until they end, or the user has seen enough.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "files/video/player.h"
#include "files/video/screen.h"

namespace weft::video {

struct Show {
  std::vector<std::unique_ptr<Player>> players;
  std::unique_ptr<Screen> screen;
  bool hold = false;                  // keep the last frames on the screen
  std::function<bool()> interrupted;  // by a signal, for example
  // For one film, or for its server once the film is over; the others go on.
  std::function<void(const files::Failed&)> failed;
};

// Returns how many films failed.
//   what Screen::show() and finish() report
[[nodiscard]] files::Outcome<unsigned> run(Show& show);

}  // namespace weft::video
