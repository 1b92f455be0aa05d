#include "files/video/playback.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <utility>

namespace weft::video {

using files::failed;
using files::Outcome;

namespace {

std::int64_t ns(Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

}  // namespace

Playback::Playback(std::string path, const Film& film, std::uint32_t records,
                   const PlayOptions& options, Clock::time_point now)
    : path_(std::move(path)), film_(film), records_(records), options_(options) {
  assert(options.first < records);
  next_index_ = next_arrival_ = position_ = options.first;
  end_ = options.loop ? std::numeric_limits<std::uint64_t>::max() : records_;
  if (options.frames != 0 && options.frames < end_ - options.first) {
    end_ = options.first + options.frames;
  }
  grants_.limit = grants_.told = options.slots;
  grants_.at.assign(options.slots, now);
}

Outcome<void> Playback::record_arrived(std::uint32_t number, const std::uint8_t* data,
                                       Clock::time_point now) {
  const bool stale = seek_to_ || seek_under_way_ || sequence_ < stale_until_;
  // Behind the last frame comes none, or the first.
  const std::uint64_t next = options_.loop ? next_arrival_ % records_ : next_arrival_;
  const bool wanted = !over_ && number < records_ && (stale || number == next);
  if (sequence_++ >= grants_.limit || !wanted) {
    return failed(EPROTO, path_, "the server sent a frame that was not asked for");
  }
  const std::int64_t fetch = ns(now - grants_.at.front());
  grants_.at.pop_front();
  stats_.fetch_ns += fetch;
  // One more than those that the viewer's own pause can make long.
  if (fetches_.size() > options_.slots) fetches_.pop_front();
  fetches_.push_back(std::chrono::nanoseconds(fetch));
  stats_.fetch_max_ns = std::max(stats_.fetch_max_ns, fetch);
  stats_.bytes += film_.record_bytes();
  if (stale) {
    release(now);
    return {};
  }
  if (film_.mark_bytes != 0 && std::memcmp(data, kFrameMark.data(), film_.mark_bytes) != 0) {
    return failed(EBADMSG, path_,
                  "frame " + std::to_string(number) +
                      " is damaged, or has parameters of its own, which are not supported");
  }
  ready_.push_back({next_arrival_++, number, {data + film_.mark_bytes, film_.frame_bytes}, now});
  if (!started_) {
    started_ = now;
    start_index_ = ready_.back().index;
    // The clock stands at this frame until pause() ends.
    if (paused_at_) paused_at_ = now;
  }
  return {};
}

Outcome<void> Playback::granted(std::uint64_t started) {
  if (!std::exchange(grants_.under_way, false) || started < sequence_ || started > grants_.told) {
    return failed(EPROTO, path_, "the server answered a grant with a number that cannot be");
  }
  if (std::exchange(seek_under_way_, false)) stale_until_ = started;
  return {};
}

Outcome<void> Playback::ended(std::uint64_t server_cpu_us, bool asked) {
  over_ = true;
  stats_.server_cpu_us = server_cpu_us;
  const bool complete = next_arrival_ >= end_ && !seek_to_ && !seek_under_way_;
  if (asked || complete) return {};
  return failed(EPROTO, path_, "the server ended the film before its last frame");
}

// Slots come back in the order in which they were filled.
void Playback::release(Clock::time_point now) {
  ++grants_.limit;
  grants_.at.push_back(now);
}

std::optional<Playback::Grant> Playback::next_grant() {
  const bool nothing = grants_.limit == grants_.told && !seek_to_;
  if (grants_.under_way || over_ || nothing) return std::nullopt;
  grants_.told = grants_.limit;
  grants_.under_way = true;
  seek_under_way_ = seek_to_.has_value();
  ++stats_.requests;
  return Grant{grants_.limit, std::exchange(seek_to_, std::nullopt)};
}

Clock::time_point Playback::due_time(std::uint64_t index) const {
  const std::int64_t after = film_.due_ns(index) - film_.due_ns(start_index_);
  return *started_ + std::chrono::nanoseconds(after);
}

std::uint64_t Playback::index_due(Clock::time_point now) const {
  const auto since = static_cast<double>(ns(now - *started_));
  return start_index_ +
         static_cast<std::uint64_t>(std::max(0.0, since) * film_.rate_num / film_.rate_den / 1e9);
}

std::optional<Playback::Frame> Playback::due(Clock::time_point now) {
  if (ready_.empty() || finished()) return std::nullopt;
  // A film that is paused shows the frame where it stands: the first after a seek.
  if (paused_at_ && ready_.front().index != start_index_) return std::nullopt;
  if (!options_.paced) return ready_.front();
  if (!paused_at_ && due_time(ready_.front().index) > now) return std::nullopt;
  while (!paused_at_ && ready_.size() > 1 && due_time(ready_[1].index) <= now) {
    ready_.pop_front();
    release(now);
  }
  return ready_.front();
}

void Playback::shown(const Frame& frame, Clock::time_point now) {
  if (stats_.shown++ == 0) stats_.first_shown = now;
  stats_.last_shown = now;
  Clock::time_point wanted = frame.arrived;
  if (options_.paced) {
    wanted = std::max(wanted, due_time(frame.index));
    if (now > due_time(frame.index + 1) && !paused_at_) ++stats_.late;
  }
  const std::int64_t flip = std::max<std::int64_t>(0, ns(now - wanted));
  stats_.flip_ns += flip;
  stats_.flip_max_ns = std::max(stats_.flip_max_ns, flip);
}

void Playback::taken(const Frame& frame, Clock::time_point now) {
  ready_.pop_front();
  if (frame.index > next_index_) stats_.dropped += frame.index - next_index_;
  next_index_ = frame.index + 1;
  position_ = frame.index;
  release(now);
  if (!options_.paced || paused_at_ || seek_to_ || seek_under_way_) return;
  const std::uint64_t wanted_index = index_due(now);
  if (wanted_index <= frame.index + options_.slots) return;
  // The frame that is asked for now comes after so long.
  const auto fetch = *std::min_element(fetches_.begin(), fetches_.end());
  jump(std::min(index_due(now + fetch) + 1, end_ - 1), now);
}

// Leaves out what would come too late anyway. The clock goes on.
void Playback::jump(std::uint64_t index, Clock::time_point now) {
  for (; !ready_.empty(); ready_.pop_front()) release(now);
  seek_to_ = static_cast<std::uint32_t>(index % records_);
  next_arrival_ = index;
}

void Playback::seek(std::uint32_t number, Clock::time_point now) {
  number = std::min(number, records_ - 1);
  started_.reset();
  next_index_ = position_ = position_ - position_ % records_ + number;
  jump(next_index_, now);
}

std::optional<Clock::time_point> Playback::next_time() const {
  if (ready_.empty() || finished()) return std::nullopt;
  if (paused_at_) {
    return ready_.front().index == start_index_ ? std::optional(*paused_at_) : std::nullopt;
  }
  return options_.paced ? due_time(ready_.front().index) : Clock::time_point{};
}

void Playback::pause(bool on, Clock::time_point now) {
  if (on == paused()) return;
  if (on) {
    paused_at_ = now;
    return;
  }
  if (started_) *started_ += now - *paused_at_;
  paused_at_.reset();
}

}  // namespace weft::video
