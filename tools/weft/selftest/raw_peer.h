// A peer made of a TCP socket and raw_bytes.h: no code of the library on this side. `weft selftest`
// and the conformance tests speak through it.
//
// Every wait has a limit. What the other side must not do, and what it fails to do in time, is
// thrown as raw::Failure, in tests with the line that was waiting. One thread.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "raw_bytes.h"
#include "raw_ring.h"

namespace raw {

using std::chrono::milliseconds;
inline constexpr milliseconds kPatience{10000};  // for what must happen
inline constexpr milliseconds kGlance{60};       // for what must not

struct SocketOptions {
  int receive_buffer_bytes = 0;  // 0: the system's choice
  int mss_bytes = 0;             // TCP_MAXSEG; 0: the system's choice
};

enum class End { kOpen, kFin, kReset };
[[nodiscard]] const char* to_string(End end);

// The stream ended (end() says how), or stayed silent for as long as is waited, where something was
// to come.
class Cut : public Failure {
 public:
  using Failure::Failure;
};

// How this peer frames its FPDUs and what it demands of those it receives.
struct Framing {
  bool crc = true;           // off: sends `unused_crc`, demands zero
  bool markers_out = false;  // in what this peer sends
  bool markers_in = false;   // in what it receives
  std::uint32_t unused_crc = 0;
  bool any_unused_crc = false;  // off: takes any value
  bool any_pad = false;         // takes a pad that is not zero
};

// What to make wrong in one FPDU.
struct Spoil {
  std::uint32_t crc_xor = 0;      // flips bits of the CRC as it goes out
  std::uint8_t pad = 0;           // value of the pad octets
  std::uint16_t marker_xor = 0;   // flips bits of each FPDUPTR
  std::uint16_t marker_high = 0;  // first two octets of each marker
  int length_delta = 0;           // ULPDU_Length says this much more than there is
};

class Peer {
 public:
  explicit Peer(int fd = -1);  // takes the descriptor; -1: not connected
  ~Peer();
  Peer(Peer&& other) noexcept;
  Peer& operator=(Peer&& other) noexcept;

  // To a listener on this machine.
  [[nodiscard]] static Peer connect(std::uint16_t port, const SocketOptions& options = {});
  // To one anywhere, within `patience`, which then holds for each wait.
  [[nodiscard]] static Peer connect(const sockaddr* address, socklen_t length,
                                    milliseconds patience);

  milliseconds patience = kPatience;
  bool names_lines = true;  // in what is thrown

  // To a ring of shared memory (docs/path.md), from which all octets below come and into which they
  // go; the end of the stream stays TCP's. For the initiator of a connection in full operation
  // whose other end is Weft, on this machine, with `path` not tcp. Clears CRC and markers.
  void move_to_ring(int line = __builtin_LINE());

  // Octets. send() blocks until TCP, or the ring, has all of them.
  void send(View bytes);
  void send_in_pieces(View bytes, std::size_t piece);
  [[nodiscard]] Bytes recv(std::size_t count, int line = __builtin_LINE());
  // True if nothing comes for a while. An end of the stream is something.
  [[nodiscard]] bool quiet(milliseconds span = kGlance);
  // Waits for the end and throws if an octet comes before it.
  void expect_fin(int line = __builtin_LINE());
  void expect_reset(int line = __builtin_LINE());
  void expect_closed(int line = __builtin_LINE());  // either
  // How the stream has ended as far as it was read.
  [[nodiscard]] End end() const { return end_; }
  // Reads and drops up to the end.
  End drain(int line = __builtin_LINE());

  void shutdown_write();
  void reset();  // closes with a reset
  void close();
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  [[nodiscard]] int effective_mss() const;
  [[nodiscard]] std::uint16_t local_port() const;

  // Start-up frames.
  [[nodiscard]] MpaFrame recv_mpa(int line = __builtin_LINE());

  // FPDUs.
  Framing framing;
  // The octets of the next FPDU of this stream; they must then be sent.
  [[nodiscard]] Bytes frame(const Bytes& ulpdu, const Spoil& spoil = {});
  void send_fpdu(const Bytes& ulpdu, const Spoil& spoil = {});
  void send_fpdus(const std::vector<Bytes>& ulpdus);  // in one call
  [[nodiscard]] Bytes recv_ulpdu(int line = __builtin_LINE());
  [[nodiscard]] Segment recv_segment(int line = __builtin_LINE());
  [[nodiscard]] Segment recv_segment(Opcode opcode, int line = __builtin_LINE());
  // All whole segments up to the end of the stream, however it ends.
  [[nodiscard]] std::vector<Segment> recv_to_end(int line = __builtin_LINE());

  // The next FPDU is this Terminate and nothing else, octet for octet.
  void expect_terminate(Code code, Attach attach = Attach::kNothing, const Bytes& offending = {},
                        int line = __builtin_LINE());
  // ... with whatever attached that a Terminate may carry, then FIN.
  void expect_terminate_code(Code code, int line = __builtin_LINE());

  [[nodiscard]] std::uint64_t received() const { return received_; }  // octets of the FPDU stream
  [[nodiscard]] bool has_unread() const { return taken_ < inbox_.size(); }

 private:
  bool fill(milliseconds limit);  // false: nothing came; at the end sets end_
  bool fill_from_tcp();
  bool fill_from_ring(milliseconds limit);
  std::size_t send_some(View bytes);
  Bytes take(std::size_t count, int line, const char* what);
  void take_marker_if_due(Bytes& covered, std::uint64_t start, bool inside, int line);
  void put_marker_if_due(Bytes& out, std::uint64_t start, bool inside, const Spoil& spoil);
  [[nodiscard]] std::string where(int line) const;
  [[noreturn]] void fail(int line, const std::string& what) const;

  int fd_ = -1;
  std::unique_ptr<RingEnd> ring_;  // null: all goes by TCP
  Bytes inbox_;
  std::size_t taken_ = 0;
  End end_ = End::kOpen;
  std::uint64_t sent_ = 0, received_ = 0;  // octets of the FPDU streams
};

class Listener {
 public:
  explicit Listener(const SocketOptions& options = {});
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] Peer accept(int line = __builtin_LINE());
  void close();

 private:
  int fd_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace raw
