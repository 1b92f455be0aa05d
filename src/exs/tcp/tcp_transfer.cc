// TCP: moving bytes.
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <vector>

#include "base/bytes.h"
#include "exs/tcp/tcp_socket.h"
#include "os/cancel.h"
#include "os/sigpipe.h"

namespace weft::exs {
namespace {

constexpr std::uint32_t kGreeting = 0x45585350;  // "EXSP", before the first message
constexpr std::size_t kPiecesMax = EXS_IOV_MAX + 1;
constexpr std::size_t kFileChunk = 256UL * 1024UL;

bool try_later(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

void TcpSocket::sends_posted() {
  pump_sends();
  if (s_.state == State::kConnected) advance_end();
}

void TcpSocket::pump_sends() {
  bool any = false;
  while (!s_.ops.sends.empty() && s_.state == State::kConnected) {
    Operation& op = s_.ops.sends.front();
    if ((op.flags & EXS_PERSISTENT) != 0) {
      // From before it was known that the connection would be one over TCP.
      s_.finish_front(s_.ops.sends, EOPNOTSUPP, 0);
      any = true;
      continue;
    }
    if (!send_some(op)) break;
    if (op.done < op.total || (framed() && frame_sent_ < frame_out_bytes_)) continue;
    frame_sent_ = frame_out_bytes_ = 0;
    greeted_ = true;
    s_.stats.bytes_sent += op.total;
    s_.finish_front(s_.ops.sends, 0, op.total);
    any = true;
  }
  if (any) s_.changed();
}

// The front send: some of what is left of it. False: it has to wait, or the connection is over.
bool TcpSocket::send_some(Operation& op) {
  // Anew until some of it has gone: what was in front before may have been cancelled.
  if (framed() && frame_sent_ == 0) {
    assert(op.done == 0);
    ByteWriter out(frame_out_);
    if (!greeted_) {
      out.be32(kGreeting);
      out.be32(kProtocolVersion);
    }
    out.be32(static_cast<std::uint32_t>(op.total));
    out.be32(0);
    frame_out_bytes_ = out.written().size();
  }
  const std::size_t head = frame_out_bytes_ - frame_sent_;
  ssize_t sent = 0;
  const Piece* file = nullptr;
  std::size_t file_at = 0;
  if (head == 0 && op.done < op.total) {
    each_piece(op, op.done, 1, [&](const Piece& piece, std::size_t at, std::size_t) {
      if (piece.fd >= 0) file = &piece;
      file_at = at;
    });
  }
  sent = file != nullptr ? send_file(*file, file_at) : send_memory(op);
  if (sent < 0 && try_later(errno)) return errno == EINTR;
  if (sent < 0 || (sent == 0 && file != nullptr)) {
    // A file that is shorter than the caller said: the stream cannot go on behind a gap.
    failed(sent == 0 ? EINVAL : errno);
    return false;
  }
  const auto bytes = static_cast<std::size_t>(sent);
  frame_sent_ += std::min(head, bytes);
  op.done += bytes - std::min(head, bytes);
  assert(frame_sent_ <= frame_out_bytes_ && op.done <= op.total);
  return true;
}

ssize_t TcpSocket::send_memory(Operation& op) {
  std::array<iovec, kPiecesMax> vec;
  std::size_t count = 0;
  if (frame_sent_ < frame_out_bytes_) {
    vec[count++] = {frame_out_.data() + frame_sent_, frame_out_bytes_ - frame_sent_};
  }
  bool files = false;
  each_piece(op, op.done, op.total - op.done,
             [&](const Piece& piece, std::size_t at, std::size_t length) {
               files = files || piece.fd >= 0;
               if (files) return;
               assert(count < vec.size());
               vec[count++] = {piece.base + at, length};
             });
  if (count == 0) return 0;
  msghdr message{};
  message.msg_iov = vec.data();
  message.msg_iovlen = count;
  const int more = files ? MSG_MORE : 0;
  return os::uncancelled(
      [&] { return ::sendmsg(s_.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT | more); });
}

ssize_t TcpSocket::send_file(const Piece& piece, std::size_t at) {
  off_t offset = piece.offset + static_cast<off_t>(at);
  if (nonblocking_) {
    return os::without_sigpipe(
        [&] { return ::sendfile(s_.fd, piece.fd, &offset, piece.length - at); });
  }
  // sendfile(2) has no flag that keeps it from blocking.
  std::vector<std::uint8_t> chunk(std::min(kFileChunk, piece.length - at));
  const ssize_t got =
      os::uncancelled([&] { return ::pread(piece.fd, chunk.data(), chunk.size(), offset); });
  if (got <= 0) return got;
  return os::uncancelled([&] {
    return ::send(s_.fd, chunk.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

void TcpSocket::receives_posted() { pump_receives(); }

void TcpSocket::pump_receives() {
  while (!s_.ops.receives.empty() && s_.state == State::kConnected) {
    if (ended_) {
      s_.finish_front(s_.ops.receives, 0, s_.ops.receives.front().done);
      continue;
    }
    if (framed() ? !receive_packet() : !receive_stream(s_.ops.receives.front())) return;
  }
}

void TcpSocket::at_end() {
  assert(!ended_ && !in_message_ && frame_got_ == 0);
  ended_ = true;
  s_.changed();
}

bool TcpSocket::receive_stream(Operation& op) {
  std::array<iovec, kPiecesMax> vec;
  std::size_t count = 0;
  each_piece(op.pieces, op.done, op.total - op.done,
             [&](const Piece& piece, std::size_t at, std::size_t length) {
               vec[count++] = {piece.base + at, length};
             });
  if (count != 0) {
    msghdr message{};
    message.msg_iov = vec.data();
    message.msg_iovlen = count;
    const ssize_t got = os::uncancelled([&] { return ::recvmsg(s_.fd, &message, MSG_DONTWAIT); });
    if (got < 0 && try_later(errno)) return errno == EINTR;
    if (got < 0) {
      failed(errno);
      return false;
    }
    if (got == 0) {
      at_end();
      return true;
    }
    op.done += static_cast<std::size_t>(got);
    s_.stats.bytes_received += static_cast<std::uint64_t>(got);
  }
  const bool whole = op.done == op.total;
  if (whole || (op.flags & MSG_WAITALL) == 0) s_.finish_front(s_.ops.receives, 0, op.done);
  return true;
}

// The header of the next message. False: not all of it is there.
bool TcpSocket::read_frame() {
  while (frame_got_ < kFrameBytes) {
    const ssize_t got = os::uncancelled([&] {
      return ::recv(s_.fd, frame_in_.data() + frame_got_, kFrameBytes - frame_got_, MSG_DONTWAIT);
    });
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && try_later(errno)) return false;
    if (got < 0 || (got == 0 && frame_got_ != 0)) {
      failed(got < 0 ? errno : ECONNRESET);
      return false;
    }
    if (got == 0) {
      at_end();
      return false;
    }
    frame_got_ += static_cast<std::size_t>(got);
  }
  frame_got_ = 0;
  return true;
}

void TcpSocket::take_partial(Operation& op) {
  op.done = std::min(partial_.size(), op.total);
  copy_in(op, 0, partial_.data(), op.done);
  op.truncated = op.truncated || partial_cut_ || op.done < partial_.size();
  partial_ = {};
  partial_cut_ = false;
}

// Some of the message that comes in. False: it has to wait, or the connection is over.
bool TcpSocket::receive_packet() {
  if (!in_message_) {
    if (!read_frame()) return ended_;
    const std::uint32_t first = load_be32(frame_in_.data());
    const std::uint32_t second = load_be32(frame_in_.data() + 4);
    const char* why = nullptr;
    if (!greeting_seen_) {
      if (first != kGreeting) why = "it does not speak EXS";
      if (first == kGreeting && second != kProtocolVersion) why = "it speaks another version";
      greeting_seen_ = true;
    } else if (first > kTransferMax || second != 0) {
      why = "a message header that cannot be";
    } else {
      in_message_ = true;
      message_left_ = first;
    }
    if (why != nullptr) {
      log_line(s_, "connection reset", why);
      failed(ECONNRESET);
      return false;
    }
    if (!in_message_) return true;
  }
  Operation& op = s_.ops.receives.front();
  if (op.done == 0) take_partial(op);
  while (message_left_ != 0) {
    std::array<iovec, kPiecesMax> vec;
    std::array<std::uint8_t, 16384> rest;
    std::size_t count = 0;
    const std::size_t want = std::min(message_left_, op.total - op.done);
    each_piece(op.pieces, op.done, want,
               [&](const Piece& piece, std::size_t at, std::size_t length) {
                 vec[count++] = {piece.base + at, length};
               });
    if (want == 0) vec[count++] = {rest.data(), std::min(rest.size(), message_left_)};
    msghdr message{};
    message.msg_iov = vec.data();
    message.msg_iovlen = count;
    const ssize_t got = os::uncancelled([&] { return ::recvmsg(s_.fd, &message, MSG_DONTWAIT); });
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && try_later(errno)) return false;
    if (got <= 0) {
      failed(got < 0 ? errno : ECONNRESET);
      return false;
    }
    const auto bytes = static_cast<std::size_t>(got);
    assert(bytes <= message_left_ && op.done <= op.total);
    message_left_ -= bytes;
    if (want != 0) {
      op.done += bytes;
    } else {
      op.truncated = true;
    }
    s_.stats.bytes_received += static_cast<std::uint64_t>(got);
  }
  in_message_ = false;
  s_.finish_front(s_.ops.receives, op.truncated ? EMSGSIZE : 0, op.done);
  return true;
}

}  // namespace weft::exs
