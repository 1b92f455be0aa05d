#include "files/video/player.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace weft::video {

using files::failed;
using files::Op;
using files::Outcome;

namespace {

constexpr std::uint32_t kPage = 4096;
constexpr std::uint32_t kAlign = 64;  // of pixels
// PLAY, GRANT and CLOSE may be under way at once.
constexpr std::uint32_t kCreditsNeeded = 3;
// A server that says nothing must not keep the window on the screen.
constexpr std::chrono::seconds kStopWait{2};

std::int64_t ns(Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

}  // namespace

Outcome<std::unique_ptr<Player>> Player::open(const files::ServerAddress& server,
                                              const std::string& path, const PlayOptions& options) {
  std::unique_ptr<Player> player(new Player);
  player->path_ = path;
  player->options_ = options;
  player->options_.slots = std::clamp(options.slots, 2U, files::kMaxSlots);
  auto client = files::Client::connect(server, player->options_.slots);
  if (!client) return tl::unexpected(client.error());
  player->client_ = std::move(*client);
  if (player->client_->credits() < kCreditsNeeded)
    return failed(EPROTO, path, "the server has too few credits");
  if (auto ok = player->identify_film(); !ok) {
    files::Failed why = ok.error();
    if (why.what.empty()) why.what = path;
    return tl::unexpected(why);
  }
  if (auto ok = player->play(); !ok) return tl::unexpected(ok.error());
  return player;
}

Outcome<void> Player::identify_film() {
  auto head = files::Registered::create(client_->pd(), kHeaderBytes,
                                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!head) return tl::unexpected(head.error());
  const std::uint64_t at = files::address_of(head->data());
  const auto opened = client_->call(files::OpenRequest{{at, head->rkey(), 0}, {path_}});
  if (!opened) return tl::unexpected(opened.error());
  handle_ = opened->handle;
  const std::uint64_t size = opened->state.attributes.size;
  if (handle_ == 0 || size == 0) return failed(EINVAL, path_, "the file is empty");
  const files::ReadRequest read{handle_, 0, {at, head->rkey(), kHeaderBytes}};
  const auto got = client_->call(read, path_);
  if (!got) return tl::unexpected(got.error());
  const auto film =
      identify(path_, {head->data(), std::min<std::size_t>(got->bytes, kHeaderBytes)});
  if (!film) return tl::unexpected(film.error());
  film_ = *film;
  records_ = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(film_.records_in(size), std::numeric_limits<std::uint32_t>::max()));
  if (records_ == 0) return failed(EINVAL, path_, "the file has not one whole frame");
  return {};
}

Outcome<void> Player::play() {
  const PlayOptions& options = options_;
  if (options.first >= records_) {
    return failed(EINVAL, path_, "the film has " + std::to_string(records_) + " frames");
  }
  pitch_ = (film_.record_bytes() + kAlign + kPage - 1) / kPage * kPage;
  auto memory = files::Registered::create(client_->pd(), std::size_t{options_.slots} * pitch_,
                                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
  next_index_ = options.first;
  last_number_ = position_ = options.first;
  end_ = options.loop ? std::numeric_limits<std::uint64_t>::max() : records_;
  if (options.frames != 0) end_ = std::min(end_, options.first + options.frames);
  grants_.limit = grants_.told = options_.slots;
  grants_.at.assign(options_.slots, Clock::now());
  files::PlayRequest request;
  request.handle = handle_;
  request.offset = film_.first_offset;
  request.memory = {files::address_of(slot_data(0)), memory_.rkey(), film_.record_bytes()};
  request.pitch = pitch_;
  request.slots = options_.slots;
  request.records = records_;
  request.record = options.first;
  request.limit = grants_.limit;
  request.flags = options.loop ? std::uint32_t{files::kPlayLoop} : 0;
  return client_->post(request);
}

// The record, whose pixels are aligned: the mark in front of them is not.
std::uint8_t* Player::slot_data(unsigned slot) const {
  const std::uint32_t skew = (kAlign - film_.mark_bytes % kAlign) % kAlign;
  return memory_.data() + std::size_t{slot} * pitch_ + skew;
}

Outcome<std::size_t> Player::progress() {
  for (std::size_t count = 0;; ++count) {
    if (over_) return count;
    auto got = client_->next();
    if (!got) return tl::unexpected(got.error());
    if (!*got) return count;
    const files::Client::Arrival& arrival = **got;
    auto ok = arrival.is_record ? record_arrived(arrival.record) : answer_arrived(arrival.answer);
    if (!ok) return tl::unexpected(ok.error());
  }
}

Outcome<void> Player::record_arrived(std::uint32_t number) {
  const auto slot = static_cast<unsigned>(sequence_ % options_.slots);
  const bool stale = seek_to_ || seek_under_way_ || sequence_ < stale_until_;
  if (sequence_++ >= grants_.limit || number >= records_) {
    return failed(EPROTO, path_, "the server sent a frame that was not asked for");
  }
  const auto now = Clock::now();
  const std::int64_t fetch = ns(now - grants_.at.front());
  grants_.at.pop_front();
  stats_.fetch_ns += fetch;
  stats_.fetch_max_ns = std::max(stats_.fetch_max_ns, fetch);
  stats_.bytes += film_.record_bytes();
  if (stale) return release();
  if (number < last_number_) loop_base_ += records_;
  last_number_ = number;
  const std::uint8_t* data = slot_data(slot);
  if (film_.mark_bytes != 0 && std::memcmp(data, kFrameMark.data(), film_.mark_bytes) != 0) {
    return failed(EBADMSG, path_,
                  "frame " + std::to_string(number) +
                      " is damaged, or has parameters of its own, which are not supported");
  }
  ready_.push_back(
      {loop_base_ + number, number, {data + film_.mark_bytes, film_.frame_bytes}, now});
  if (!started_) {
    started_ = now;
    start_index_ = ready_.back().index;
    // The clock stands at this frame until pause() ends.
    if (paused_at_) paused_at_ = now;
  }
  return {};
}

Outcome<void> Player::answer_arrived(const files::Answer& answer) {
  if (answer.op == Op::kPlay) {
    over_ = true;
    if (answer.error == ENODATA) return failed(ESTALE, path_, "the file became shorter");
    if (answer.error != 0) return tl::unexpected(files::explain(answer.error, path_));
    const auto reply = client_->read<files::PlayReply>(answer);
    if (!reply) return tl::unexpected(reply.error());
    stats_.server_cpu_us = reply->cpu_us;
    return {};
  }
  if (answer.op != Op::kGrant) return {};
  grants_.under_way = false;
  if (answer.error != 0) return tl::unexpected(files::explain(answer.error, path_));
  const auto reply = client_->read<files::GrantReply>(answer);
  if (!reply) return tl::unexpected(reply.error());
  if (std::exchange(seek_under_way_, false)) stale_until_ = reply->records;
  return grant();
}

// Slots come back in the order in which they were filled.
Outcome<void> Player::release() {
  ++grants_.limit;
  grants_.at.push_back(Clock::now());
  return grant();
}

// One GRANT at a time: what is released meanwhile goes with the next.
Outcome<void> Player::grant() {
  if (grants_.under_way || over_ || (grants_.limit == grants_.told && !seek_to_)) return {};
  files::GrantRequest request;
  request.handle = handle_;
  request.limit = grants_.told = grants_.limit;
  if (seek_to_) {
    request.record = *std::exchange(seek_to_, std::nullopt);
    request.flags = files::kGrantSeek;
    seek_under_way_ = true;
  }
  grants_.under_way = true;
  ++stats_.requests;
  return client_->post(request);
}

Clock::time_point Player::due_time(std::uint64_t index) const {
  const std::int64_t after = film_.due_ns(index) - film_.due_ns(start_index_);
  return *started_ + std::chrono::nanoseconds(after);
}

std::uint64_t Player::index_due(Clock::time_point now) const {
  const auto since = static_cast<double>(ns(now - *started_));
  return start_index_ +
         static_cast<std::uint64_t>(std::max(0.0, since) * film_.rate_num / film_.rate_den / 1e9);
}

std::optional<Player::Frame> Player::due(Clock::time_point now) {
  if (ready_.empty() || finished()) return std::nullopt;
  // A film that is paused shows the frame where it stands: the first after a seek.
  if (paused_at_ && ready_.front().index != start_index_) return std::nullopt;
  if (!options_.paced) return ready_.front();
  if (!paused_at_ && due_time(ready_.front().index) > now) return std::nullopt;
  while (!paused_at_ && ready_.size() > 1 && due_time(ready_[1].index) <= now) {
    ready_.pop_front();
    if (!release()) return std::nullopt;  // progress() will say why
  }
  return ready_.front();
}

Outcome<void> Player::shown(const Frame& frame, Clock::time_point now) {
  ready_.pop_front();
  if (stats_.shown++ == 0) stats_.first_shown = now;
  stats_.last_shown = now;
  if (frame.index > next_index_) stats_.dropped += frame.index - next_index_;
  next_index_ = frame.index + 1;
  position_ = frame.number;
  Clock::time_point wanted = frame.arrived;
  if (options_.paced) {
    wanted = std::max(wanted, due_time(frame.index));
    if (now > due_time(frame.index + 1) && !paused_at_) ++stats_.late;
  }
  const std::int64_t flip = std::max<std::int64_t>(0, ns(now - wanted));
  stats_.flip_ns += flip;
  stats_.flip_max_ns = std::max(stats_.flip_max_ns, flip);
  if (auto ok = release(); !ok) return ok;
  if (!options_.paced || paused_at_ || seek_to_ || seek_under_way_) return {};
  const std::uint64_t wanted_index = index_due(now);
  if (wanted_index <= frame.index + options_.slots) return {};
  return jump(std::min(wanted_index + 1, end_ - 1));
}

// Leaves out what would come too late anyway. The clock goes on.
Outcome<void> Player::jump(std::uint64_t index) {
  while (!ready_.empty()) {
    ready_.pop_front();
    if (auto ok = release(); !ok) return ok;
  }
  seek_to_ = static_cast<std::uint32_t>(index % records_);
  loop_base_ = index - *seek_to_;
  last_number_ = *seek_to_;
  return grant();
}

Outcome<void> Player::seek(std::uint32_t number) {
  number = std::min(number, records_ - 1);
  started_.reset();
  next_index_ = loop_base_ + number;
  position_ = number;
  return jump(next_index_);
}

std::optional<Clock::time_point> Player::next_time() const {
  if (ready_.empty() || finished()) return std::nullopt;
  if (paused_at_) {
    return ready_.front().index == start_index_ ? std::optional(*paused_at_) : std::nullopt;
  }
  return options_.paced ? due_time(ready_.front().index) : Clock::time_point{};
}

void Player::pause(bool on, Clock::time_point now) {
  if (on == paused()) return;
  if (on) {
    paused_at_ = now;
    return;
  }
  if (started_) *started_ += now - *paused_at_;
  paused_at_.reset();
}

Outcome<void> Player::stop() {
  if (over_) return {};
  if (auto ok = client_->post(files::CloseRequest{handle_}); !ok) return ok;
  const auto until = Clock::now() + kStopWait;
  while (!over_) {
    if (auto ok = client_->arm(); !ok) return ok;
    const auto got = client_->next();
    if (!got) return tl::unexpected(got.error());
    if (!*got) {
      if (Clock::now() >= until) return failed(ETIMEDOUT, path_, "the server does not answer");
      pollfd one{client_->fd(), POLLIN, 0};
      (void)::poll(&one, 1, 100);
      continue;
    }
    const files::Answer& answer = (*got)->answer;
    if ((*got)->is_record || answer.op != Op::kPlay) continue;
    over_ = true;
    if (answer.error != 0) continue;
    const auto reply = client_->read<files::PlayReply>(answer);
    if (reply) stats_.server_cpu_us = reply->cpu_us;
  }
  return {};
}

}  // namespace weft::video
