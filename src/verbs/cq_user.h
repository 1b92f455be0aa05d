// The interface by which a completion queue knows the queue pairs that deliver to it.
#pragma once

namespace weft::verbs {

class CqUser {
 public:
  virtual ~CqUser() = default;
  // A completion of its own may have been lost. On the engine's thread.
  virtual void cq_overflowed() = 0;
};

// One that reads a socket no shard knows: of datagrams. Any thread.
class DatagramReader {
 public:
  virtual ~DatagramReader() = default;
  // A caller polls the queue: reads what is there.
  virtual void look() = 0;
  // The caller may sleep next: the background reads from now on.
  virtual void hand_over() = 0;
};

}  // namespace weft::verbs
