// The requests and messages of one queue pair that are not done, as far as known, and the records
// of those that are.
//
// One thread at a time. Times are given: this knows no clock.
#pragma once

#include <weft/types.h>

#include <cstdint>
#include <vector>

#include "timeline/growing_ring.h"
#include "timeline/record.h"

namespace weft::timeline {

class QueueBook {
 public:
  using Records = std::vector<Record>;

  struct Post {
    std::uint64_t wr_id = 0;
    Op op{};
    std::uint32_t length = 0;
    bool signaled = false;
  };

  void set_number(std::uint32_t qp) { qp_ = qp; }
  // The stream from now on.
  void connected(std::uint32_t connection);

  // Before a request is posted, and that the last one was refused. Returns its number.
  std::uint32_t posting(const Post& post, std::uint64_t now);
  void not_posted();
  // The call has returned that posted this one and all behind it.
  void post_returned(std::uint32_t first, std::uint64_t now);

  // The engine tells of a request, or of a message. A record of one that is done goes to `out`.
  void step(const Step& step, std::uint64_t now, Records& out);
  // The receive for the next message was posted then; kNever: unknown.
  void receive_taken(std::uint64_t posted, std::uint64_t now);
  // A message waits for its receive from now on.
  void receive_is_late(std::uint64_t now);
  // It got none, and is dropped.
  void message_is_lost() { message_ = {}; }

  struct Polled {
    std::uint64_t wr_id = 0;
    std::uint8_t status = 0;
    bool receive = false;  // meaningful only without an error
  };
  void polled(const Polled& completion, std::uint64_t now, Records& out);

  // The queue pair is empty now, and has no stream; or it is gone. What is known of its requests
  // goes to `out`.
  void emptied(Records& out);

 private:
  struct Request {
    Post post;
    bool begun = false, built = false;
    std::uint32_t connection = 0;
    std::uint64_t begin = 0, end = 0;
    std::uint64_t posted = 0;
    std::array<std::uint64_t, kTimes> at = {kNever, kNever, kNever, kNever, kNever, kNever};
    // A bind or a local invalidation.
    [[nodiscard]] bool has_no_octets() const { return built && end == begin; }
  };
  struct Message {
    Op op = Op::kUnknown;
    std::uint32_t length = 0;
    std::uint32_t connection = 0;
    std::uint64_t end = 0;
    std::uint64_t wr_id = 0;
    bool late = false;
    std::array<std::uint64_t, kTimes> at = {kNever, kNever, kNever, kNever, kNever, kNever};
    [[nodiscard]] std::uint64_t& time(At what) { return at[static_cast<std::size_t>(what)]; }
  };

  [[nodiscard]] Request* find(std::uint32_t number);
  void begin_again(std::uint32_t number, Request& request);
  void sent(std::uint64_t offset, std::uint64_t now);
  void placed(const Step& step, std::uint64_t now, Records& out);
  [[nodiscard]] bool is_receive(const Polled& completion) const;
  // Its place among requests_, or their number: it is of none.
  [[nodiscard]] std::size_t request_of(const Polled& completion) const;
  [[nodiscard]] bool poll_request(const Polled& completion, std::uint64_t now, Records& out);
  void poll_receive(const Polled& completion, std::uint64_t now, Records& out);
  void write(const Request& request, std::uint8_t status, Records& out) const;
  void write(Kind kind, const Message& message, std::uint8_t status, Records& out) const;

  std::uint32_t qp_ = 0;
  std::uint32_t connection_ = 0;
  Ring<Request> requests_;
  std::uint32_t first_ = 0;   // the number of the oldest; free-running
  std::uint32_t unsent_ = 0;  // of the first that is not wholly out
  Message message_;           // that is coming
  Ring<Message> received_;
};

}  // namespace weft::timeline
