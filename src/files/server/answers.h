// Each request of a session gets one reply, at once or later. What fails here fails the session,
// and a session that has failed answers nothing more.
//
// Belongs to a session. One thread, the server's.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "files/protocol/data_messages.h"
#include "files/server/message_ring.h"
#include "files/server/server_shared.h"

namespace weft::files {

// A request that gets a reply.
struct Asked {
  Op op = Op::kStat;
  std::uint64_t tag = 0;
};

class Answers {
 public:
  // Whose answers they are.
  class Owner {
   public:
    virtual void fail() = 0;  // calls close()

   protected:
    ~Owner() = default;
  };

  // A client may ask for so much that is answered later, at a time.
  static constexpr std::size_t kMostBegun = kCredits + 16;

  Answers(Owner& owner, MessageRing& ring, ServeCounters& counters)
      : owner_(owner), ring_(ring), counters_(counters) {}
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  template <class Reply>
  void send(const Asked& asked, const Reply& reply) {
    const auto room = room_for_reply();
    if (!room.empty()) post(encode_reply(asked.op, reply, asked.tag, room));
  }
  void refuse(const Asked& asked, int error);
  // HELLO of another version.
  void refuse_version(const Asked& asked);

  // A request is answered later.   false: those are too many, the session has failed
  [[nodiscard]] bool begin();
  // Its answer comes now.
  void end() {
    assert(begun_ > 0);
    --begun_;
  }

  void fail() { owner_.fail(); }
  // The session has failed.
  void close() { closed_ = true; }
  [[nodiscard]] bool closed() const { return closed_; }

 private:
  // Empty: the session has failed, perhaps since there is none.
  [[nodiscard]] std::span<std::uint8_t> room_for_reply();
  void post(std::size_t bytes);

  Owner& owner_;
  MessageRing& ring_;
  ServeCounters& counters_;
  std::size_t begun_ = 0;
  bool closed_ = false;
};

}  // namespace weft::files
