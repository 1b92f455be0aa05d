// One film on its way from a server to the screen.
//
// The server pushes frames into a few slots of this side's memory (PLAY in docs/data-protocol.md).
// The player says which frame is due, and grants the slot to the server again when the caller is
// done with it. Frames are due by the clock; a film that falls behind drops frames, and asks the
// server to leave some out when it is behind by more than its slots hold.
//
// One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "files/client/data_client.h"
#include "files/video/film.h"

namespace weft::video {

using Clock = std::chrono::steady_clock;

struct PlayOptions {
  unsigned slots = 3;  // frames of memory, 2 to files::kMaxSlots
  bool paced = true;   // by the clock; else as fast as they come, without dropping any
  bool loop = false;
  std::uint32_t first = 0;   // frame
  std::uint64_t frames = 0;  // to be played; 0: all
};

struct PlayStats {
  std::uint64_t shown = 0, dropped = 0;
  std::uint64_t late = 0;      // shown more than one frame's time after they were due
  std::uint64_t requests = 0;  // messages to the server since PLAY
  std::uint64_t bytes = 0;
  std::int64_t fetch_ns = 0, fetch_max_ns = 0;  // from the grant of a slot until a frame is in it
  std::int64_t flip_ns = 0, flip_max_ns = 0;    // from when a frame is there or due until shown
  std::uint64_t server_cpu_us = 0;              // CPU time of the server, known after stop()
  Clock::time_point first_shown{}, last_shown{};
};

class Player {
 public:
  struct Frame {
    std::uint64_t index = 0;  // counts on when a film is repeated
    std::uint32_t number = 0;
    std::span<const std::uint8_t> pixels{};
    Clock::time_point arrived{};
  };

  // Connects, reads what the film is, and starts it.
  [[nodiscard]] static files::Outcome<std::unique_ptr<Player>> open(
      const files::ServerAddress& server, const std::string& path, const PlayOptions& options);

  [[nodiscard]] const Film& film() const { return film_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint32_t records() const { return records_; }
  [[nodiscard]] const PlayStats& stats() const { return stats_; }

  // Readable when something arrives after arm(). Call progress() between the two.
  [[nodiscard]] int fd() const { return client_->fd(); }
  [[nodiscard]] files::Outcome<void> arm() { return client_->arm(); }
  // Takes what has arrived; returns how much.
  //   ECONNRESET, EPROTO, or the error of the server's disk: the film is over
  [[nodiscard]] files::Outcome<std::size_t> progress();

  // The frame to be shown now. Its pixels are valid until shown().
  [[nodiscard]] std::optional<Frame> due(Clock::time_point now);
  // It was shown: its slot goes back to the server.
  [[nodiscard]] files::Outcome<void> shown(const Frame& frame, Clock::time_point now);
  // When due() has something again; nothing while it depends on the server or the user.
  [[nodiscard]] std::optional<Clock::time_point> next_time() const;

  void pause(bool on, Clock::time_point now);
  [[nodiscard]] bool paused() const { return paused_at_.has_value(); }
  // Goes on at another frame.
  [[nodiscard]] files::Outcome<void> seek(std::uint32_t number);
  [[nodiscard]] std::uint32_t position() const { return position_; }
  [[nodiscard]] bool finished() const { return next_index_ >= end_; }

  // Ends the film at the server. Nothing is written into this side's memory any more.
  [[nodiscard]] files::Outcome<void> stop();

 private:
  Player() = default;
  [[nodiscard]] files::Outcome<void> identify_film();
  [[nodiscard]] files::Outcome<void> play();
  [[nodiscard]] files::Outcome<void> record_arrived(std::uint32_t number);
  [[nodiscard]] files::Outcome<void> answer_arrived(const files::Answer& answer);
  [[nodiscard]] files::Outcome<void> release();
  [[nodiscard]] files::Outcome<void> grant();
  [[nodiscard]] files::Outcome<void> jump(std::uint64_t index);
  [[nodiscard]] Clock::time_point due_time(std::uint64_t index) const;
  [[nodiscard]] std::uint64_t index_due(Clock::time_point now) const;
  [[nodiscard]] std::uint8_t* slot_data(unsigned slot) const;

  std::unique_ptr<files::Client> client_;
  files::Registered memory_;
  std::string path_;
  PlayOptions options_;
  Film film_;
  std::uint64_t handle_ = 0;
  std::uint32_t records_ = 0;
  std::uint32_t pitch_ = 0;
  bool over_ = false;  // the reply to PLAY is here

  std::uint64_t sequence_ = 0;     // records that arrived since PLAY
  std::uint64_t stale_until_ = 0;  // those in front of this sequence number are of before a seek
  // Records that the server may send.
  struct Grants {
    std::uint64_t limit = 0;
    std::uint64_t told = 0;  // of that
    bool under_way = false;
    std::deque<Clock::time_point> at;  // when, of those that have not arrived
  };
  Grants grants_;
  bool seek_under_way_ = false;
  std::optional<std::uint32_t> seek_to_;  // to be sent with the next grant

  std::deque<Frame> ready_;
  std::uint64_t loop_base_ = 0;  // index of record 0 in this round
  std::uint32_t last_number_ = 0;
  std::uint64_t next_index_ = 0;  // behind the last one that was shown
  std::uint64_t end_ = 0;
  std::uint32_t position_ = 0;
  std::optional<Clock::time_point> started_;  // when frame `start_index_` is due
  std::uint64_t start_index_ = 0;
  std::optional<Clock::time_point> paused_at_;
  PlayStats stats_;
};

}  // namespace weft::video
