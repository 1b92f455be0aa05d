// Every limit of the engine, in one place, with its unit. Exceeding one is kLimitExceeded at the
// call that asked for it, with nothing changed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::limits {

inline constexpr std::uint32_t kQueuePairs = 65536;
inline constexpr std::uint32_t kCompletionQueues = 65536;
inline constexpr std::uint32_t kProtectionDomains = 65536;
inline constexpr std::uint32_t kSharedReceiveQueues = 65536;
inline constexpr std::uint32_t kWorkRequestsPerQueue = 16384;
inline constexpr std::uint32_t kCompletionsPerQueue = 4U << 20U;
#ifdef WEFT_PROFILE_SMALL  // a microcontroller
inline constexpr std::uint32_t kSgesPerRequest = 4;
#else
inline constexpr std::uint32_t kSgesPerRequest = 32;
#endif
inline constexpr std::uint32_t kInlineBytes = 1024;
inline constexpr std::uint32_t kMessageBytes = 1U << 31U;
inline constexpr std::uint16_t kIrd = 128;  // Reads and atomics served at once, per QP
inline constexpr std::uint16_t kOrd = 128;  // Reads and atomics outstanding, per QP
inline constexpr std::uint32_t kMemoryRegions = 1U << 24U;  // regions and windows together
inline constexpr std::size_t kPrivateDataBytes = 508;  // 512 on the wire less the enhanced words
inline constexpr std::uint32_t kBacklog = 1024;  // requests per listener that nobody has taken yet
// Per device, of which the program has not been told: without a Request so far, or with one that
// waits for room in the backlog. No more than a quarter of RLIMIT_NOFILE, at least 16. One more,
// and the oldest without a Request is reset, of the host that has the most of them, once it has
// waited for 50 ms, or at once while the kernel's queue is half full; until then the newcomer waits
// in the kernel. If all have sent their Requests, newcomers wait. Listener::hand_in() always takes
// its connection, and that counts here too.
inline constexpr std::uint32_t kHalfOpenConnections = 1024;
// Completion queues take a descriptor (an epoll) each, up to one in so many of RLIMIT_NOFILE. Those
// beyond share them.
inline constexpr std::uint32_t kShareOfCompletionQueues = 8;
inline constexpr std::uint32_t kAsyncEvents = 4096;      // undelivered, per device
inline constexpr std::uint16_t kBackgroundThreads = 64;  // per device
// Rings of shared memory, 512 KiB each, per device. Further connections stay on TCP.
inline constexpr std::uint32_t kRings = 512;
// Memory of rings whose connections are over, kept for a second for the next ones. Per device.
inline constexpr std::uint32_t kKeptRings = 32;
// The length of Config::roce_secret. Shorter ones are guessed from what an exchange of hellos
// shows.
inline constexpr std::size_t kSecretBytesMin = 16;

}  // namespace weft::limits
