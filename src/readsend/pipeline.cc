#include "readsend/pipeline.h"

#include <algorithm>
#include <cassert>
#include <cerrno>

namespace weft::readsend {

void Piece::disk_done(std::int64_t result) { pipeline->disk_done(*this, result); }

// ---- Pieces

Piece& Pipeline::new_piece(Link& link, Request& request) {
  if (unused_.empty()) unused_.push_back(&pieces_.emplace_back());
  Piece& piece = *unused_.back();
  unused_.pop_back();
  piece.pipeline = this;
  piece.link = &link;
  piece.request = &request;
  piece.segment.reset();
  piece.at = 0;
  piece.want = piece.got = piece.skew = 0;
  piece.place = link.pieces_.size();
  link.pieces_.push_back(&piece);
  return piece;
}

void Pipeline::release(Piece& piece) {
  Link& link = *piece.link;
  if (piece.segment) {
    link.give_back(*piece.segment);
    --link.with_segment_;
  }
  Piece* const last = link.pieces_.back();
  link.pieces_[piece.place] = last;
  last->place = piece.place;
  link.pieces_.pop_back();
  unused_.push_back(&piece);
}

// ---- From the disk

bool Pipeline::fits(const Request& request, std::uint32_t segment_bytes) {
  return request.bytes <= segment_bytes &&
         room_for(request, static_cast<std::uint32_t>(request.bytes)) <= segment_bytes;
}

void Pipeline::submit(Link& link, Request& request) {
  assert(request.bytes != 0 && !link.closed_);
  request.end = request.bytes;
  request.place = link.requests_.insert(link.requests_.end(), &request);
  activate(link);
}

void Pipeline::activate(Link& link) {
  if (link.active_) return;
  link.active_ = true;
  active_.push_back(&link);
}

std::size_t Pipeline::pump() {
  std::size_t count = 0;
  // Until a whole round has started nothing.
  for (std::size_t in_vain = 0; in_vain < active_.size();) {
    Link& link = *active_.front();
    active_.pop_front();
    std::size_t started = flush(link);
    if (!link.closed_ && start_piece(link)) ++started;
    count += started;
    const bool stays = !link.closed_ && (!link.ready_.empty() || next_to_read(link) != nullptr);
    if (stays) {
      active_.push_back(&link);
    } else {
      link.active_ = false;
    }
    in_vain = started != 0 ? 0 : in_vain + (stays ? 1 : 0);
  }
  return count;
}

Request* Pipeline::next_to_read(const Link& link) {
  const auto at = std::find_if(link.requests_.begin(), link.requests_.end(),
                               [](const Request* request) { return request->has_more(); });
  return at == link.requests_.end() ? nullptr : *at;
}

bool Pipeline::start_piece(Link& link) {
  if (link.with_segment_ >= link.max_pieces_ || !disk_.has_room()) return false;
  Request* const request = next_to_read(link);
  if (request == nullptr) return false;
  const std::uint64_t offset = request->offset + request->started;
  const auto skew = request->direct ? static_cast<std::uint32_t>(offset % kPage) : 0U;
  std::uint64_t bytes = request->bytes - request->started;
  if (!request->whole) bytes = std::min<std::uint64_t>(bytes, piece_bytes_ - skew);
  const auto segment = link.take_segment(room_for(*request, static_cast<std::uint32_t>(bytes)));
  if (!segment) return false;
  Piece& piece = new_piece(link, *request);
  piece.segment = segment;
  ++link.with_segment_;
  piece.at = request->started;
  piece.want = static_cast<std::uint32_t>(bytes);
  piece.skew = skew;
  request->started += bytes;
  ++request->reading;
  read(piece);
  return true;
}

std::uint32_t Pipeline::room_for(const Request& request, std::uint32_t bytes) {
  if (!request.direct) return bytes;
  const auto skew = static_cast<std::uint32_t>((request.offset + request.started) % kPage);
  return (skew + bytes + kPage - 1) / kPage * kPage;
}

void Pipeline::read(Piece& piece) {
  const Request& request = *piece.request;
  std::uint32_t bytes = piece.want - piece.got + piece.skew;
  if (request.direct) bytes = (bytes + kPage - 1) / kPage * kPage;
  piece.state = Piece::State::kDisk;
  ++piece.link->on_disk_;
  disk_.read(request.fd, piece.segment->data + piece.got, bytes,
             request.offset + piece.at + piece.got - piece.skew, piece);
}

void Pipeline::disk_done(Piece& piece, std::int64_t result) {
  Link& link = *piece.link;
  --link.on_disk_;
  if (link.closed_) return release(piece);
  Request& request = *piece.request;
  if (result < 0 && request.error == 0) request.error = static_cast<int>(-result);
  auto moved = static_cast<std::uint32_t>(std::max<std::int64_t>(result, 0));
  if (request.direct) {
    // One attempt brings all there is; what was read around it does not count.
    moved = std::min(moved > piece.skew ? moved - piece.skew : 0, piece.want);
    result = 0;
  }
  piece.got += moved;
  // Short, but not at an end.
  if (result > 0 && piece.got < piece.want && !request.failed()) return read(piece);
  --request.reading;
  piece.state = Piece::State::kReady;
  if (piece.got < piece.want) request.end = std::min(request.end, piece.at + piece.got);
  if (request.failed() || piece.got == 0) {
    release(piece);
  } else if (request.whole) {
    request.message = &piece;
  } else {
    enqueue(link, piece);
  }
  settle(link, request);
  if (!link.closed_) flush(link);
}

// ---- To the network

void Pipeline::enqueue(Link& link, Piece& piece) {
  piece.state = Piece::State::kReady;
  ++piece.request->queued;
  link.ready_.push_back(&piece);
}

// The request may be gone when this returns, and the link closed.
void Pipeline::settle(Link& link, Request& request) {
  if (request.concluded) return check(link, request);
  if (!request.is_read()) return;
  if (request.order == 0) return conclude(link, request);
  const std::uint64_t order = request.order;
  while (!link.closed_) {
    const auto first = std::find_if(
        link.requests_.begin(), link.requests_.end(),
        [order](const Request* one) { return one->order == order && !one->concluded; });
    if (first == link.requests_.end() || !(*first)->is_read()) return;
    conclude(link, **first);
  }
}

void Pipeline::conclude(Link& link, Request& request) {
  request.concluded = true;
  Piece* const message = request.message;
  request.message = nullptr;
  if (!request.complete()) {
    if (message != nullptr) release(*message);
  } else {
    if (message != nullptr) enqueue(link, *message);
    if (request.has_tail) enqueue(link, new_piece(link, request));
  }
  check(link, request);
}

// Tells the link how far a concluded request is.
void Pipeline::check(Link& link, Request& request) {
  if (request.queued != 0) return activate(link);
  if (!request.sent) {
    request.sent = true;
    link.sent(request);
    if (link.closed_) return;
  }
  if (request.on_network != 0) return;
  link.requests_.erase(request.place);
  link.finished(request);
}

std::size_t Pipeline::flush(Link& link) {
  std::size_t count = 0;
  while (!link.closed_ && !link.ready_.empty()) {
    Piece& piece = *link.ready_.front();
    Request& request = *piece.request;
    const int error = request.failed() ? ECANCELED : link.post(request, piece);
    if (link.closed_) break;
    if (error == EAGAIN) {
      activate(link);
      break;
    }
    link.ready_.pop_front();
    --request.queued;
    ++count;
    if (error == 0) {
      piece.state = Piece::State::kNetwork;
      ++request.on_network;
      ++link.on_network_;
    } else {
      if (!request.failed()) request.error = error;
      release(piece);
    }
    settle(link, request);
  }
  return count;
}

void Pipeline::network_done(Piece& piece, bool good) {
  Link& link = *piece.link;
  Request& request = *piece.request;
  --request.on_network;
  --link.on_network_;
  if (!good) request.net_failed = true;
  release(piece);
  settle(link, request);
  flush(link);
}

// ---- Ends

void Pipeline::close(Link& link) {
  if (link.closed_) return;
  link.closed_ = true;
  if (link.active_) active_.remove(&link);
  link.active_ = false;
  link.ready_.clear();
  link.requests_.clear();
  link.on_network_ = 0;
  const std::vector<Piece*> pieces = link.pieces_;
  for (Piece* piece : pieces) {
    if (piece->state != Piece::State::kDisk) release(*piece);
  }
}

}  // namespace weft::readsend
