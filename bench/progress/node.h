// Verbs objects of one process: connections over rdma_cm, completion queues and the ways to wait on
// them, numbered messages. Nothing here knows Weft.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "run.h"

namespace progress {

// A message is 64 bytes; its number stands in the first and in the last word. This bit on top says
// that no other follows.
inline constexpr std::uint64_t kLast = 1ULL << 63;
inline constexpr unsigned kMessageBytes = 64;
inline constexpr unsigned kMessageWords = kMessageBytes / 8;

enum class Wait {
  kPoll,
  kNotify,  // arm, poll once more, ibv_get_cq_event
  kEpoll,   // arm, poll once more, an epoll of the program's over a nonblocking channel
};

class Node;

// A completion queue and how its owner waits. One thread.
class Queue {
 public:
  // `channel`: one that several queues share; null: its own, where `wait` needs one.
  Queue(Node& node, Wait wait, ibv_comp_channel* channel = nullptr, unsigned depth = 1024);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  ibv_cq* cq() const { return cq_; }
  // Completions that are there; all of them good.
  unsigned poll(ibv_wc* wcs, unsigned count);
  // The same, at least one.
  unsigned take(ibv_wc* wcs, unsigned count);

 private:
  void sleep();
  const Wait wait_;
  ibv_comp_channel* channel_;
  bool own_channel_;
  ibv_cq* cq_ = nullptr;
  int epoll_ = -1;
  bool armed_ = false;
};

// One connection. One thread.
class Link {
 public:
  static bool is_receive(const ibv_wc& wc) { return (wc.wr_id & kLast) != 0; }
  static unsigned number_of(const ibv_wc& wc) {
    return static_cast<unsigned>(wc.wr_id >> 32) & 0xffff;
  }

  // Each signaled, and inline.
  void send(std::uint64_t value);
  // A whole message, to the start of what the peer lets us write.
  void write_message(std::uint64_t value, bool signaled = true);
  // 8 bytes behind it.
  void write_bell(std::uint64_t value, bool signaled = true);
  void read(void* to, std::uint32_t lkey, std::uint32_t length, std::uint64_t from,
            std::uint32_t rkey);
  // The message of a completed receive, which must have the next number; posts the receive again.
  std::uint64_t receive(const ibv_wc& wc);
  // Watches memory, as ib_write_lat does, until the peer's Write with that number is there, and
  // returns it with the bit. Looks at no completion queue.
  std::uint64_t await_bell(std::uint64_t number) const;
  // The peer's last write_message().
  std::uint64_t message_word(unsigned index) const;

  rdma_cm_id* id = nullptr;
  unsigned number = 0;
  std::uint64_t sent = 0;      // numbers of Sends or Writes, for their posters
  std::uint64_t received = 0;  // the number of the last Send that came

 private:
  friend class Node;
  void post(ibv_send_wr& wr, bool signaled);
  void post_receive(unsigned slot);
  void stamp(std::uint64_t value);
  std::uint64_t* word(std::size_t offset) const;

  std::uint8_t* slice_ = nullptr;  // what the peer writes, what is sent, receives
  std::uint32_t lkey_ = 0;
  std::uint64_t peer_address_ = 0;
  std::uint32_t peer_rkey_ = 0;
};

// The device, memory, and the connections of a process. One thread.
class Node {
 public:
  // Up to `links` connections, with so many receives each. The server's listens at shared.port.
  Node(const Run& run, unsigned links, unsigned receives = 4);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Connections to the other process, in the same order at both; both ends from the same queues.
  Link& connect(Queue& queue);
  Link& accept(Queue& queue);
  // A connection of this process to itself, both ends on one queue.
  struct Loop {
    Link* active;
    Link* passive;
  };
  Loop loop(Queue& queue);
  // Ends it, the last one of its queue. Its number is free for another.
  void close(Link& link, Queue& queue);
  // The peer ended an accepted connection.
  void await_disconnect(const Link& link);
  // Waits for the other process, then ends all connections. REQUIRED before a queue of theirs goes.
  void finish();

  Link& link(unsigned number) { return *links_[number]; }
  unsigned links() const { return static_cast<unsigned>(links_.size()); }
  ibv_context* context() const { return context_; }
  ibv_mr* register_memory(void* memory, std::size_t bytes, int access) const;

 private:
  void close(Link& link);
  Link& begin_connect(Queue& queue, std::uint16_t port);
  void end_connect(Link& link);
  Link& open(rdma_cm_id* id, Queue& queue);
  rdma_cm_event* next_event(rdma_event_channel* channel, rdma_cm_event_type type, rdma_cm_id* id);
  rdma_cm_event* expect(rdma_event_channel* channel, rdma_cm_event_type type,
                        rdma_cm_id* id = nullptr);
  void take_offer(Link& link, const rdma_cm_event& event);

  const Run& run_;
  const unsigned receives_;
  std::size_t slice_bytes_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::uint8_t* memory_ = nullptr;
  std::size_t memory_bytes_;
  rdma_event_channel* active_ = nullptr;   // events of connections that begin here
  rdma_event_channel* passive_ = nullptr;  // and of the listener with its connections
  rdma_cm_id* listener_ = nullptr;
  std::uint16_t port_ = 0;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<rdma_cm_event*> early_;  // events of one connection that came before another's
};

}  // namespace progress
