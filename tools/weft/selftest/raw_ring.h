// The ring of shared memory, written down a second time from docs/path.md: no code of the library
// on this side. raw_peer.h speaks through it when it has moved there.
//
// One end, that of the initiator. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "raw_bytes.h"

namespace raw {

// The STags of the messages about the path.
enum class PathWord : std::uint32_t {
  kName = 0x57665101,
  kProof = 0x57665102,
  kAnswered = 0x57665103,
  kRefused = 0x57665104,
  kByRing = 0x57665105,
};

class RingEnd {
 public:
  // Listens where the responder will leave the memory. Throws Failure.
  RingEnd();
  ~RingEnd();
  RingEnd(const RingEnd&) = delete;
  RingEnd& operator=(const RingEnd&) = delete;

  // The ULPDU of a message about this ring.
  [[nodiscard]] Bytes message(PathWord word) const;
  // The responder has said that it has answered. Throws Failure if what is there is not a ring.
  void take();

  // Of these octets, how many there was room for.
  [[nodiscard]] std::size_t send(View bytes);
  // What is there now.
  [[nodiscard]] Bytes receive();
  // Before a sleep on bell(): false if there is something to receive. Afterwards awake().
  [[nodiscard]] bool prepare_sleep();
  void awake();
  [[nodiscard]] int bell() const { return bell_; }
  void close_sending();

 private:
  struct Side;
  [[nodiscard]] Side& side(std::size_t which) const;
  [[nodiscard]] std::uint8_t* buffer(std::size_t which) const;
  void adopt(View hello, int memory);
  void wake(std::uint32_t reason);

  std::uint64_t name_ = 0, proof_ = 0;
  int listener_ = -1, bell_ = -1;
  std::uint8_t* base_ = nullptr;
  std::size_t mapped_ = 0;
  std::uint32_t bytes_ = 0;  // of each direction
  std::uint32_t head_ = 0, tail_ = 0;
};

}  // namespace raw
