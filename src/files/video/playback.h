// The frames of one film, as they come from a server and go to the screen: which have arrived,
// which is due, which slots of memory go back.
//
// Frames are due by the clock; a film that falls behind drops frames, and asks the server to leave
// some out when it is behind by more than its slots hold.
//
// No connection and no clock: times are arguments. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "files/protocol/outcome.h"
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
  std::uint64_t server_cpu_us = 0;              // CPU time of the server, known after it has ended
  Clock::time_point first_shown{}, last_shown{};
};

class Playback {
 public:
  struct Frame {
    std::uint64_t index = 0;  // counts on when a film is repeated
    std::uint32_t number = 0;
    std::span<const std::uint8_t> pixels{};
    Clock::time_point arrived{};
  };
  // A message to the server.
  struct Grant {
    std::uint64_t limit = 0;              // records that it may send, in all
    std::optional<std::uint32_t> seek{};  // the next one
  };

  // `path` is for messages. All slots are granted at `now`.  REQUIRES: options.first < records
  Playback(std::string path, const Film& film, std::uint32_t records, const PlayOptions& options,
           Clock::time_point now);

  // Where the next record comes to.
  [[nodiscard]] unsigned next_slot() const {
    return static_cast<unsigned>(sequence_ % options_.slots);
  }
  // A record is in next_slot(), at `data`.
  //   EPROTO    it was not asked for, or is not the next one
  //   EBADMSG   it is no frame
  [[nodiscard]] files::Outcome<void> record_arrived(std::uint32_t number, const std::uint8_t* data,
                                                    Clock::time_point now);
  // The last grant took effect when so many records had been started.
  //   EPROTO    that cannot be
  [[nodiscard]] files::Outcome<void> granted(std::uint64_t started);
  // The server has ended the film, asked for it or not.
  //   EPROTO    not asked, and not all frames have arrived
  [[nodiscard]] files::Outcome<void> ended(std::uint64_t server_cpu_us, bool asked);
  // The next message, once that before it is answered: what is released meanwhile goes with it.
  [[nodiscard]] std::optional<Grant> next_grant();

  // The frame to be shown now. Its pixels are valid until taken().
  [[nodiscard]] std::optional<Frame> due(Clock::time_point now);
  // The screen has a copy of it: its slot goes back to the server.
  void taken(const Frame& frame, Clock::time_point now);
  // It stands on the screen; no seek() between the two.
  void shown(const Frame& frame, Clock::time_point now);
  // When due() has something again; nothing while it depends on the server or the user.
  [[nodiscard]] std::optional<Clock::time_point> next_time() const;

  void pause(bool on, Clock::time_point now);
  [[nodiscard]] bool paused() const { return paused_at_.has_value(); }
  // Goes on at another frame.
  void seek(std::uint32_t number, Clock::time_point now);
  [[nodiscard]] std::uint32_t position() const {
    return static_cast<std::uint32_t>(position_ % records_);
  }
  [[nodiscard]] bool finished() const { return next_index_ >= end_; }
  [[nodiscard]] bool is_over() const { return over_; }  // the server sends nothing any more
  [[nodiscard]] const PlayStats& stats() const { return stats_; }

 private:
  void release(Clock::time_point now);
  void jump(std::uint64_t index, Clock::time_point now);
  [[nodiscard]] Clock::time_point due_time(std::uint64_t index) const;
  [[nodiscard]] std::uint64_t index_due(Clock::time_point now) const;

  const std::string path_;
  const Film film_;
  const std::uint32_t records_;
  const PlayOptions options_;
  bool over_ = false;

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
  std::deque<Clock::duration> fetches_;
  bool seek_under_way_ = false;
  std::optional<std::uint32_t> seek_to_;  // to be sent with the next grant

  std::deque<Frame> ready_;
  std::uint64_t next_arrival_ = 0;  // index of the next record that is not stale
  std::uint64_t next_index_ = 0;    // behind the last one that was taken
  std::uint64_t end_ = 0;
  std::uint64_t position_ = 0;                // index
  std::optional<Clock::time_point> started_;  // when frame `start_index_` is due
  std::uint64_t start_index_ = 0;
  std::optional<Clock::time_point> paused_at_;
  PlayStats stats_;
};

}  // namespace weft::video
