// ReadSend without a network: ranges of files go piece by piece into segments of device memory, and
// from there to the peer, several pieces at a time.
//
// A *link* is a connection. It says where memory comes from and posts what it is given; the
// library's queue pairs and the data server's sessions are links. Links take turns, a piece each,
// so that a client with many requests does not keep others from the disk. Within a link the oldest
// request comes first.
//
// One thread. Nothing here waits. Requests and links belong to the caller; pieces are reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <vector>

#include "readsend/disk.h"

namespace weft::readsend {

class Link;
class Pipeline;
struct Piece;

// One range of a file on its way. It stays where it is from Pipeline::submit() to Link::finished().
struct Request {
  int fd = -1;
  bool direct = false;  // the file is open with O_DIRECT
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // not 0
  // All of it goes in one message, so in one segment. Otherwise pieces go to the network as they
  // come from the disk, in any order.
  bool whole = false;
  // One message more, without octets of the file, behind the pieces.
  bool has_tail = false;
  // Whole messages and tails of one link and the same order leave in the order of their requests;
  // 0: as they come.
  std::uint64_t order = 0;

  int error = 0;            // of the disk, or why nothing could be posted: an errno
  bool net_failed = false;  // a message did not complete
  std::uint64_t end = 0;    // octets that there turned out to be; fewer than `bytes`: the file ends

  [[nodiscard]] bool failed() const { return error != 0 || net_failed; }
  [[nodiscard]] bool complete() const { return !failed() && end == bytes; }

 private:
  friend class Pipeline;
  [[nodiscard]] bool has_more() const { return !failed() && started < bytes; }
  [[nodiscard]] bool is_read() const { return reading == 0 && !has_more(); }
  std::uint64_t started = 0;  // octets that pieces were made for
  unsigned reading = 0;       // pieces at the disk
  unsigned queued = 0;        // pieces that the network has not been given yet
  unsigned on_network = 0;
  bool concluded = false;  // read, and its turn has come; no more is queued
  bool sent = false;
  Piece* message = nullptr;  // `whole`: what waits for its turn
  std::list<Request*>::iterator place;
};

struct Segment {
  std::uint8_t* data = nullptr;
  std::uint64_t handle = 0;  // the link's
};

// A part of a request. What the network completes is a piece: its address is the work request's id.
struct Piece final : Disk::Waiter {
  Pipeline* pipeline = nullptr;
  Link* link = nullptr;
  Request* request = nullptr;
  std::optional<Segment> segment;  // a tail has none
  std::uint64_t at = 0;            // octets in front of it in the range
  std::uint32_t want = 0, got = 0;
  std::uint32_t skew = 0;  // O_DIRECT: octets in front that were not asked for
  std::size_t place = 0;   // in the link's list
  enum class State : std::uint8_t { kDisk, kReady, kNetwork } state = State::kDisk;

  [[nodiscard]] std::uint8_t* octets() const { return segment->data + skew; }
  [[nodiscard]] bool is_tail() const { return !segment; }
  void disk_done(std::int64_t result) override;
};

// A connection. The pipeline calls what is private here.
class Link {
 public:
  explicit Link(unsigned max_pieces) : max_pieces_(max_pieces) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // The kernel reads into its segments.
  [[nodiscard]] bool on_disk() const { return on_disk_ != 0; }
  // The network has its pieces.
  [[nodiscard]] bool on_network() const { return on_network_ != 0; }

 protected:
  virtual ~Link() = default;

 private:
  friend class Pipeline;
  friend struct Piece;
  // Memory for `bytes`, at a border of 4096; none: later, when a piece has been given back.
  [[nodiscard]] virtual std::optional<Segment> take_segment(std::uint32_t bytes) = 0;
  virtual void give_back(const Segment& segment) = 0;
  // 0: posted. EAGAIN: no room; it is tried again by pump(), and when something completes. Another
  // errno fails the request.
  [[nodiscard]] virtual int post(Request& request, Piece& piece) = 0;
  // Nothing more will be posted for it: what follows cannot overtake it.
  virtual void sent(Request& request) = 0;
  // Nothing of it is under way. The request may go.
  virtual void finished(Request& request) = 0;

  const unsigned max_pieces_;
  bool closed_ = false;
  bool active_ = false;           // in the pipeline's list
  std::list<Request*> requests_;  // in the order of submit()
  std::vector<Piece*> pieces_;    // all, wherever they are
  std::deque<Piece*> ready_;      // for the network
  unsigned on_disk_ = 0, on_network_ = 0, with_segment_ = 0;
};

class Pipeline {
 public:
  static constexpr std::uint32_t kPage = 4096;  // what O_DIRECT wants, on every disk there is

  // A multiple of kPage.
  Pipeline(Disk& disk, std::uint32_t piece_bytes) : disk_(disk), piece_bytes_(piece_bytes) {}
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Whether a `whole` request has room in a segment, O_DIRECT's incomplete pages included.
  [[nodiscard]] static bool fits(const Request& request, std::uint32_t segment_bytes);
  // REQUIRES: a `whole` request fits what the link can give.
  void submit(Link& link, Request& request);
  // Starts as many reads as there is room for, and posts what waited; returns how many.
  std::size_t pump();
  // A piece is back from the network.
  void network_done(Piece& piece, bool good);
  // Forgets the link's requests, without telling. REQUIRES: nothing that was posted touches its
  // segments any more. It may go once on_disk() is false.
  void close(Link& link);

 private:
  friend struct Piece;
  [[nodiscard]] Piece& new_piece(Link& link, Request& request);
  void release(Piece& piece);
  void activate(Link& link);
  [[nodiscard]] static Request* next_to_read(const Link& link);
  [[nodiscard]] bool start_piece(Link& link);
  [[nodiscard]] static std::uint32_t room_for(const Request& request, std::uint32_t bytes);
  void read(Piece& piece);
  void disk_done(Piece& piece, std::int64_t result);
  void enqueue(Link& link, Piece& piece);
  void settle(Link& link, Request& request);
  void conclude(Link& link, Request& request);
  void check(Link& link, Request& request);
  std::size_t flush(Link& link);

  Disk& disk_;
  const std::uint32_t piece_bytes_;
  std::list<Link*> active_;   // who may have something to read or to post
  std::deque<Piece> pieces_;  // a deque: they do not move
  std::vector<Piece*> unused_;
};

}  // namespace weft::readsend
