// Where films are shown. One thread, the one that made it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "files/protocol/outcome.h"
#include "files/video/player.h"

namespace weft::video {

// A wish of the user, as a screen reports it.
struct Action {
  enum class Kind : std::uint8_t { kQuit, kPause, kSeek };
  Kind kind = Kind::kQuit;
  int seconds = 0;  // Seek: from where the film stands
};

class Screen {
 public:
  virtual ~Screen() = default;
  // Takes a copy of the pixels, or is done with them.
  //   any error ends the program: the screen is gone, or a check failed
  [[nodiscard]] virtual files::Outcome<void> show(std::size_t film, const Player::Frame& frame) = 0;
  // Makes all visible that was shown since the last call.
  [[nodiscard]] virtual files::Outcome<void> flip() { return {}; }
  // Nothing more is shown.
  //   any error: what the screen was to keep is not whole
  [[nodiscard]] virtual files::Outcome<void> finish() { return {}; }
  // The user's wishes since the last call.
  [[nodiscard]] virtual std::vector<Action> actions() { return {}; }
  // How often actions() wants to be called: milliseconds, -1: never
  [[nodiscard]] virtual int interval_ms() const { return -1; }
  virtual void status(const std::string& text) { static_cast<void>(text); }
  // How often a picture was moved, without a word to a server.
  [[nodiscard]] virtual std::uint64_t moves() const { return 0; }
};

struct WindowOptions {
  bool full_screen = false;
  bool roam = false;                    // move the pictures 60 times a second
  std::uint32_t width = 0, height = 0;  // 0: as large as the films
};

// A window of the desktop, with the films beside each other.
//   ENOTSUP      built without SDL2
//   ENODEV       no display
[[nodiscard]] files::Outcome<std::unique_ptr<Screen>> open_window(const std::vector<Film>& films,
                                                                  const WindowOptions& options);

struct HeadlessOptions {
  bool check = false;       // each frame is compared, bit for bit, with the test film's
  std::string dump_prefix;  // not empty: film N goes to PREFIXN, without headers
};
// No screen.
//   EBADMSG      from show(): a frame differs from what the test film has there
[[nodiscard]] files::Outcome<std::unique_ptr<Screen>> open_headless(const std::vector<Film>& films,
                                                                    const HeadlessOptions& options);

}  // namespace weft::video
