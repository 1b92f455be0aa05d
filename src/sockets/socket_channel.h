// One end of a byte stream between two processes of this machine: two rings of octets in shared
// memory, and a kernel socket whose readiness mirrors them.
//
// The two ends share a memory file with the rings and are the two ends of one AF_UNIX stream pair.
// Data goes through the rings. What goes through the pair is only signals: octets without meaning.
// A program holds its end of the pair as "the socket", so poll, epoll, io_uring and signals are the
// kernel's own, and the death of the other process shows as a hang-up.
//
//   readable  <=> unread octets in the ring, or the end.  A writer sends one octet when the reader
//                 has declared that it waits. It may be readable with nothing to read (once).
//   writable  <=> room in the ring. A writer that finds none fills the pair with octets; the reader
//                 takes them out when there is room.
//
// The other end is not trusted: it may write anything into the shared memory at any time. Cursors
// of our own are kept in memory it cannot see (EndState), and what it says is checked at each use.
// The locks are there too; children of fork() share them, so all go on with one stream.
//
// Threads and processes: any, at any time. No call here allocates, besides create() and attach().
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <pthread.h>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "sockets/spin.h"

namespace weft::sockets {

// Everything below is plain memory in a file shared by two processes.
struct RingHalf {
  alignas(64) std::atomic<std::uint64_t> written;  // by the writer: octets ever put in
  std::atomic<std::uint32_t> writer_waits;         // the pair is filled up: take it out, please
  std::atomic<std::uint32_t> ended;                // 1: no more will come; 2: reset
  std::atomic<std::uint64_t> signals;              // octets the writer has sent into the pair
  alignas(64) std::atomic<std::uint64_t> read;     // by the reader: octets ever taken out
  std::atomic<std::uint32_t> reader_waits;         // signal when there is something
  std::atomic<std::uint32_t> reader_gone;
};

// The path that a relay found for a connection that it bridges. For `weft stat` only.
enum class BridgePath : std::uint32_t { kAsking = 0, kRdma = 1, kTcp = 2 };

struct RingPage {
  std::uint32_t magic;
  std::uint32_t ring_bytes;         // per direction, a power of two
  std::atomic<std::uint32_t> path;  // a BridgePath, by the relay
  RingHalf half[2];                 // [0]: from end 0 to end 1
};

// State that the processes of one end share with each other, and with nobody else.
struct EndState {
  pthread_mutex_t reading;
  pthread_mutex_t writing;
  std::atomic<std::uint64_t> read_cursor;  // changed with `reading` held
  std::uint64_t write_cursor;
  std::uint64_t drained;       // octets taken out of the pair
  std::uint32_t more_signals;  // 1: there is one besides that which stands for unread octets
  std::uint64_t seen_read;     // the reader's cursor at our last write
  std::uint32_t stalled_writes;
  std::atomic<std::int32_t> holders;  // processes that have this end
  std::atomic<std::uint32_t> nonblocking;
  std::atomic<std::uint32_t> mirrored;  // the program polls: the pair must be right at all times
  std::atomic<std::uint32_t> read_shut;
  std::atomic<std::uint32_t> write_shut;
  std::atomic<std::uint32_t> reset_told;
  std::atomic<std::uint32_t> write_lost;  // octets were written for a reader that had gone
  SpinBudget read_spin;
  SpinBudget write_spin;
  sockaddr_storage local;
  sockaddr_storage peer;
  socklen_t local_length;
  socklen_t peer_length;
};

class Hold;

class Channel {
 public:
  // create() makes these: hand one set to each end.
  struct Parts {
    int memory = -1;  // the rings
    int pair[2] = {-1, -1};
  };
  // `label` is shown in /proc/PID/maps.   False with errno; nothing is left behind.
  [[nodiscard]] static bool create(const char* label, Parts& out);
  static void discard(Parts& parts);
  // This process is about to be sandboxed: from now on no channel of it makes other system calls
  // than read, write, poll and futex. Time limits on the socket (SO_RCVTIMEO) no longer count then.
  static void restrict_calls();

  // Maps the rings for end 0 or 1; `socket` is that end of the pair. `memory` stays the caller's.
  // Null with errno: ENOMEM, or EPROTO: it is not what create() makes.
  [[nodiscard]] static Channel* attach(int memory, int end, int socket);
  // Unmaps. The pair is the caller's to close.
  void release();

  // The number of our end of the pair. Not closed here.
  [[nodiscard]] int socket() const { return socket_; }
  void set_socket(int fd) { socket_ = fd; }
  void set_path(BridgePath path) { page_->path = static_cast<std::uint32_t>(path); }
  [[nodiscard]] EndState& end() const { return *end_; }
  void set_names(const sockaddr* local, socklen_t local_length, const sockaddr* peer,
                 socklen_t peer_length);

  // As recvmsg(2) and sendmsg(2) on a TCP socket, with errno. `wait`: the socket is in blocking
  // mode and MSG_DONTWAIT is not set. transmit() raises no SIGPIPE.
  // `looked_after`: the caller calls settle() before anybody sleeps for this end. Until then the
  // pair may go on saying that there is something to read.
  [[nodiscard]] ssize_t receive(const iovec* parts, std::size_t count, int flags, bool wait,
                                bool looked_after = false);
  [[nodiscard]] ssize_t transmit(const iovec* parts, std::size_t count, bool wait);

  // Half close. SHUT_RD is local, as TCP's.
  void shut(int how);
  // The other end reads ECONNRESET.
  void reset();
  // This end will read no more, and is about to be closed: the other end's writes fail from now on.
  void leave();
  // The other end reset the connection, or is not going to read what we sent. Of a pair that
  // reports an error; false: that error only means that signals were left in it.
  [[nodiscard]] bool broken() const;
  // As TCP's hang-up: both directions have ended. The pair's tells no more than that its other end
  // is closed, while TCP lets this end go on writing.
  [[nodiscard]] bool hung_up() const;
  // The other end reset the connection, and no call of this end has said so yet.
  [[nodiscard]] bool has_error() const;
  // That error, ECONNRESET, once; 0: none.
  [[nodiscard]] int take_error();

  // From now on the pair's readiness is right at any time, not only when our calls sleep or poll.
  void mirror();
  // Makes the pair's readiness right for one poll of the caller's.
  void settle();
  [[nodiscard]] std::size_t unread() const;
  // The other end has been closed: what is written goes nowhere.
  [[nodiscard]] bool reader_gone() const { return out_->reader_gone.load() != 0; }
  // Nothing to read, and the other end has been told to signal when there is.
  [[nodiscard]] bool awaits_signal() const;
  // With no room: has the pair become writable when there is some.
  void await_room();
  [[nodiscard]] std::size_t room() const;    // octets that can be written now
  [[nodiscard]] bool has_room() const;       // as the pair says it to who waits for room
  [[nodiscard]] std::size_t unsent() const;  // octets the other end has not read yet
  // Not readable for nothing: data, the end, or a reset.
  [[nodiscard]] bool really_readable();
  // No more will come, or none will be read.
  [[nodiscard]] bool reading_ended() const;

  // preload_hot.h uses this, and says what it means.
  struct Watched {
    std::atomic<int> epoll{-1};
    std::atomic<std::uint32_t> version{0};  // odd: the next two are being changed
    std::atomic<std::uint32_t> events{0};
    std::atomic<std::uint64_t> data{0};
    std::atomic<std::uint32_t> at{0};  // where it may be in the list of its thread
    int in_vain = 0;                   // reads of nothing since the last octet
  };
  Watched watched;

 private:
  Channel() = default;
  [[nodiscard]] ssize_t try_receive(const iovec* parts, std::size_t count, int flags, bool wait,
                                    bool looked_after);
  struct Cursor;
  [[nodiscard]] ssize_t try_transmit(const iovec* parts, std::size_t count, bool wait);
  [[nodiscard]] std::optional<ssize_t> end_of_write(std::size_t wanted, std::size_t done);
  [[nodiscard]] bool reader_lives(std::uint64_t read);
  void copy_in(Cursor& cursor, std::uint64_t room);
  [[nodiscard]] int await_reader(std::uint64_t read, bool wait, Hold& hold);
  [[nodiscard]] bool corrupt(std::uint64_t used) const { return used > ring_bytes_; }
  [[nodiscard]] std::size_t copy_out(const iovec* parts, std::size_t count, std::size_t skip,
                                     std::uint64_t most, bool discard) const;
  void give_room();
  void arm();
  [[nodiscard]] std::size_t late_octets(std::size_t least) const;
  void drain(std::uint64_t up_to);
  void take_stale();
  bool send_octets(std::size_t count, bool wait);
  void signal();
  void fill_up();
  [[nodiscard]] bool other_end_gone() const;
  ssize_t reset_result();
  [[nodiscard]] int await_signal(bool wait);

  RingPage* page_ = nullptr;
  std::size_t mapped_ = 0;
  EndState* end_ = nullptr;
  RingHalf* in_ = nullptr;
  RingHalf* out_ = nullptr;
  const std::uint8_t* in_data_ = nullptr;
  std::uint8_t* out_data_ = nullptr;
  std::uint64_t ring_bytes_ = 0;
  int socket_ = -1;
};

// The file's name in /proc/PID/maps begins so; what follows says path and addresses.
inline constexpr char kChannelLabel[] = "weft-socket";

}  // namespace weft::sockets
