// How a side of a ring goes to sleep, and when the other side has to wake it. Decisions only: the
// loads and stores around them are in ring.cc, and ring_wait_model_test.cc runs these functions in
// every order that two sides can reach.
//
//   the sleeper                              the waker
//     waiting = what for                       head or tail = new position
//     ready?  then waiting = 0, do not sleep   waiting of the peer: must_wake()?
//     sleep                                    then waiting = 0, and ring the bell
//
// All four are sequentially consistent: either the sleeper sees the new position, or the waker sees
// that the peer waits. Without that order both could see the old value, and the sleeper would sleep
// forever.
#pragma once

#include <cstdint>

namespace weft::shm {

namespace ring_wait {
inline constexpr std::uint32_t kNothing = 0;
inline constexpr std::uint32_t kData = 1;  // bytes to read, or the end
inline constexpr std::uint32_t kRoom = 2;  // room to write
}  // namespace ring_wait

// A side that waits for room sleeps until half of the buffer is free: one wake-up for many bytes.
[[nodiscard]] constexpr bool room_is_worth_waking(std::uint32_t used,
                                                  std::uint32_t bytes) noexcept {
  return used <= bytes / 2;
}

// The sleeper's second look, after it has said what it waits for.
[[nodiscard]] constexpr bool ready_now(std::uint32_t waiting, std::uint32_t readable,
                                       std::uint32_t used, std::uint32_t bytes) noexcept {
  if ((waiting & ring_wait::kData) != 0 && readable != 0) return true;
  return (waiting & ring_wait::kRoom) != 0 && room_is_worth_waking(used, bytes);
}

// The waker has written octets.
[[nodiscard]] constexpr bool must_wake_reader(std::uint32_t waiting) noexcept {
  return (waiting & ring_wait::kData) != 0;
}

// `there`: octets in the buffer when a read began. With so few the writer has been awake a moment
// ago, and the reader may look after it later: when it finds the buffer empty, at the latest before
// it sleeps. So the way of a small message has one costly step less.
[[nodiscard]] constexpr bool may_look_later(std::uint32_t there, std::uint32_t bytes) noexcept {
  return room_is_worth_waking(there, bytes);
}

// The waker has read octets; `used` are left in the buffer.
[[nodiscard]] constexpr bool must_wake_writer(std::uint32_t waiting, std::uint32_t used,
                                              std::uint32_t bytes) noexcept {
  return (waiting & ring_wait::kRoom) != 0 && room_is_worth_waking(used, bytes);
}

}  // namespace weft::shm
