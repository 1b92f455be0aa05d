#include "files/video/player.h"

#include <poll.h>

#include <algorithm>
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
  rest_ = film_.rest_in(size);
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
  files::PlayRequest request;
  request.handle = handle_;
  request.offset = film_.first_offset;
  request.memory = {files::address_of(slot_data(0)), memory_.rkey(), film_.record_bytes()};
  request.pitch = pitch_;
  request.slots = options_.slots;
  request.records = records_;
  request.record = options.first;
  request.limit = options_.slots;
  request.flags = options.loop ? std::uint32_t{files::kPlayLoop} : 0;
  playback_.emplace(path_, film_, records_, options_, Clock::now());
  return client_->post(request);
}

// The record, whose pixels are aligned: the mark in front of them is not.
std::uint8_t* Player::slot_data(unsigned slot) const {
  const std::uint32_t skew = (kAlign - film_.mark_bytes % kAlign) % kAlign;
  return memory_.data() + std::size_t{slot} * pitch_ + skew;
}

Outcome<std::size_t> Player::progress() {
  for (std::size_t count = 0;; ++count) {
    auto got = client_->next();
    if (!got) return tl::unexpected(got.error());
    if (!*got) return count;
    const files::Client::Arrival& arrival = **got;
    auto ok = arrival.is_record ? record_arrived(arrival.record) : answer_arrived(arrival.answer);
    if (!ok) return tl::unexpected(ok.error());
  }
}

Outcome<void> Player::record_arrived(std::uint32_t number) {
  const std::uint8_t* data = slot_data(playback_->next_slot());
  if (auto ok = playback_->record_arrived(number, data, Clock::now()); !ok) return ok;
  return grant();
}

Outcome<void> Player::answer_arrived(const files::Answer& answer) {
  if (answer.op == Op::kPlay) {
    if (answer.error == ENODATA) return failed(ESTALE, path_, "the file became shorter");
    if (answer.error != 0) return tl::unexpected(files::explain(answer.error, path_));
    const auto reply = client_->read<files::PlayReply>(answer);
    if (!reply) return tl::unexpected(reply.error());
    return playback_->ended(reply->cpu_us, false);
  }
  if (answer.op != Op::kGrant) return {};
  if (answer.error != 0) return tl::unexpected(files::explain(answer.error, path_));
  const auto reply = client_->read<files::GrantReply>(answer);
  if (!reply) return tl::unexpected(reply.error());
  if (auto ok = playback_->granted(reply->records); !ok) return ok;
  return grant();
}

Outcome<void> Player::grant() {
  const auto next = playback_->next_grant();
  if (!next) return {};
  files::GrantRequest request;
  request.handle = handle_;
  request.limit = next->limit;
  if (next->seek) {
    request.record = *next->seek;
    request.flags = files::kGrantSeek;
  }
  return client_->post(request);
}

std::optional<Player::Frame> Player::due(Clock::time_point now) {
  auto frame = playback_->due(now);
  if (!grant()) return std::nullopt;  // progress() will say why
  return frame;
}

Outcome<void> Player::taken(const Frame& frame, Clock::time_point now) {
  playback_->taken(frame, now);
  return grant();
}

Outcome<void> Player::seek(std::uint32_t number) {
  playback_->seek(number, Clock::now());
  return grant();
}

Outcome<void> Player::stop() {
  if (playback_->is_over()) return {};
  if (auto ok = client_->post(files::CloseRequest{handle_}); !ok) return ok;
  const auto until = Clock::now() + kStopWait;
  while (!playback_->is_over()) {
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
    const auto reply = answer.error == 0 ? client_->read<files::PlayReply>(answer)
                                         : tl::unexpected(files::Failed{});
    if (auto ok = playback_->ended(reply ? reply->cpu_us : 0, true); !ok) return ok;
  }
  return {};
}

}  // namespace weft::video
