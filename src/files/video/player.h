// One film on its way from a server to the screen.
//
// The server pushes frames into a few slots of this side's memory (PLAY in docs/data-protocol.md).
// The player says which frame is due, and grants the slot to the server again when the caller is
// done with it: playback.h decides, this is the connection.
//
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "files/client/data_client.h"
#include "files/video/film.h"
#include "files/video/playback.h"

namespace weft::video {

class Player {
 public:
  using Frame = Playback::Frame;

  // Connects, reads what the film is, and starts it.
  [[nodiscard]] static files::Outcome<std::unique_ptr<Player>> open(
      const files::ServerAddress& server, const std::string& path, const PlayOptions& options);

  [[nodiscard]] const Film& film() const { return film_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint32_t records() const { return records_; }
  // Octets at the end of the file that are a part of a frame.
  [[nodiscard]] std::uint64_t rest() const { return rest_; }
  [[nodiscard]] const PlayStats& stats() const { return playback_->stats(); }

  // Readable when something arrives after arm(). Call progress() between the two.
  [[nodiscard]] int fd() const { return client_->fd(); }
  [[nodiscard]] files::Outcome<void> arm() { return client_->arm(); }
  // Takes what has arrived; returns how much.
  //   ECONNRESET, EPROTO, or the error of the server's disk: the film is over
  [[nodiscard]] files::Outcome<std::size_t> progress();

  // The frame to be shown now. Its pixels are valid until taken().
  [[nodiscard]] std::optional<Frame> due(Clock::time_point now);
  // The screen has a copy of it: its slot goes back to the server.
  [[nodiscard]] files::Outcome<void> taken(const Frame& frame, Clock::time_point now);
  // It stands on the screen.
  void shown(const Frame& frame, Clock::time_point now) { playback_->shown(frame, now); }
  // When due() has something again; nothing while it depends on the server or the user.
  [[nodiscard]] std::optional<Clock::time_point> next_time() const {
    return playback_->next_time();
  }

  void pause(bool on, Clock::time_point now) { playback_->pause(on, now); }
  [[nodiscard]] bool paused() const { return playback_->paused(); }
  // Goes on at another frame.
  [[nodiscard]] files::Outcome<void> seek(std::uint32_t number);
  [[nodiscard]] std::uint32_t position() const { return playback_->position(); }
  [[nodiscard]] bool finished() const { return playback_->finished(); }

  // Ends the film at the server. Nothing is written into this side's memory any more.
  [[nodiscard]] files::Outcome<void> stop();

 private:
  Player() = default;
  [[nodiscard]] files::Outcome<void> identify_film();
  [[nodiscard]] files::Outcome<void> play();
  [[nodiscard]] files::Outcome<void> record_arrived(std::uint32_t number);
  [[nodiscard]] files::Outcome<void> answer_arrived(const files::Answer& answer);
  [[nodiscard]] files::Outcome<void> grant();
  [[nodiscard]] std::uint8_t* slot_data(unsigned slot) const;

  std::unique_ptr<files::Client> client_;
  files::Registered memory_;
  std::string path_;
  PlayOptions options_;
  Film film_;
  std::uint64_t handle_ = 0;
  std::uint32_t records_ = 0;
  std::uint64_t rest_ = 0;
  std::uint32_t pitch_ = 0;
  std::optional<Playback> playback_;  // once the film is known
};

}  // namespace weft::video
