// Placement targets: what an STag names need not be memory.
//
// A peer that RDMA Writes to a target sees a range of TO like any other. What becomes of each octet
// is the target's business: WindowTarget lays rows out in a larger surface and drops what is not
// visible, FileTarget writes to a file; a class of your own may do anything. The checks of RFC 5041
// and 5040 (STag, domain, rights, bounds, order) come first, and are those of memory.
//
// With kLocalWrite, SGEs of receives and of RDMA Reads may name a target too: what the peer sends,
// or answers, goes there. The receive or Read completes when the target has taken all of it.
//
// A target that gives() octets is a source as well: an SGE of a Send or an RDMA Write may name its
// region, and peers may read from it where its access says so. A Write whose SGE names a FileTarget
// sends a range of a file with one request: it is read in pieces while earlier ones are on their
// way, and its completion says that all of it has gone.
//
// Not so: datagrams, inline data, the old value of an atomic; and windows cannot be bound to it.
#pragma once

#include <weft/memory.h>
#include <weft/result.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#pragma GCC visibility push(default)
namespace weft {

// A target's answer to octets, or to a request for them.
enum class Placed : std::uint8_t {
  kTaken,  // of fetch(): they are there
  // There is no room just now. The same octets come again, after a millisecond at most and as soon
  // as the caller's thread makes progress. Until they are taken nothing more is read from this
  // peer, so TCP holds it back; other connections go on.
  kLater,
  // They cannot be taken. The connection ends as if they lay outside the range; a receive or Read
  // of this side fails with kLocalProtection.
  kRefused,
};

class PlacementTarget {
 public:
  virtual ~PlacementTarget() = default;
  // Octets that came from the peer, `offset` behind the first of the range. They are checked, lie
  // within the range, and belong to the callee until it returns. Of one connection, calls come in
  // the order of the octets; several connections that write to the target call at the same time.
  // Octets are taken all or not at all.
  //
  // It runs on the thread that makes progress, so it must not wait. REQUIRES: it does not
  // deregister the region.
  [[nodiscard]] virtual Placed place(std::uint64_t offset,
                                     std::span<const std::uint8_t> octets) noexcept = 0;

  // Whether fetch() is to be called at all. Asked once, when the target is registered.
  [[nodiscard]] virtual bool gives() const noexcept { return false; }
  // The other way: fills `octets` with those of the range from `offset` on, all or none. They lie
  // within the range; REQUIRES as place(). Of one message, calls come in the order of the octets;
  // octets may be asked for more than once.
  //   kLater     they are not there yet: asked again after a millisecond, and with them what other
  //              sources have given for the same FPDU. What this connection sends behind them
  //              waits; other connections go on
  //   kRefused   they can't be had: a request of this side fails with kLocalProtection, and a
  //              peer's Read ends its connection, as if they lay outside the range
  [[nodiscard]] virtual Placed fetch(std::uint64_t offset, std::span<std::uint8_t> octets) noexcept;
};

// An STag for `length` octets of `target`, the first of which is TO `iova`. The region's addr() is
// null; it keeps the target alive. When deregister() has returned, place() and fetch() are not
// running and are not called any more. reregister() changes the domain only. `access`: kRemoteWrite
// and kRemoteRead are what peers may do, kLocalWrite lets receives and Reads of this side name it.
// A source of this side needs no right.
//   kInvalidArgument   no target, the range passes the end of TO, another right, or kRemoteRead for
//                      a target that does not give octets
//   others             as ProtectionDomain::register_memory
[[nodiscard]] Result<std::shared_ptr<MemoryRegion>> register_target(
    ProtectionDomain& pd, std::shared_ptr<PlacementTarget> target, std::uint64_t length,
    std::uint64_t iova = 0, Access access = Access::kRemoteWrite);

// Rows of memory. The octets between row_bytes and pitch belong to somebody else.
struct Surface {
  std::uint8_t* first = nullptr;
  std::size_t row_bytes = 0;
  std::size_t rows = 0;
  std::size_t pitch = 0;  // octets from one row to the next
};

// Where an image lies on a surface, in octets and rows of the surface, and which part of the
// surface it may touch.
struct WindowView {
  std::int64_t x = 0, y = 0;
  std::size_t clip_x = 0, clip_y = 0;
  std::size_t clip_width = ~std::size_t{0}, clip_rows = ~std::size_t{0};
};

// An image of rows, which follow each other in the peer's range, on a surface. What falls outside
// the clip or the surface is dropped. The owner may change the view at any time; the peer is told
// nothing. As a source it gives what place() would overwrite, and zeros for what is clipped. Any
// thread.
class WindowTarget final : public PlacementTarget {
 public:
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 40U;  // of image and surface

  // The surface stays the caller's and must outlive the target.
  //   kInvalidArgument   no octets, more than kMaxBytes, or a pitch below row_bytes
  [[nodiscard]] static Result<std::shared_ptr<WindowTarget>> create(std::size_t image_row_bytes,
                                                                    std::size_t image_rows,
                                                                    const Surface& surface);
  // All of the surface is the image: rows of the range at a distance of `pitch`.
  [[nodiscard]] static Result<std::shared_ptr<WindowTarget>> layout(const Surface& surface) {
    return create(surface.row_bytes, surface.rows, surface);
  }

  [[nodiscard]] std::uint64_t length() const { return std::uint64_t{row_bytes_} * rows_; }
  // In force for what is placed from now on. It does not come between the octets of a row that
  // arrive together (of one FPDU, without markers).
  //   kInvalidArgument   x or y beyond kMaxBytes; nothing changed
  [[nodiscard]] Status set_view(const WindowView& view);

  [[nodiscard]] Placed place(std::uint64_t offset,
                             std::span<const std::uint8_t> octets) noexcept override;
  [[nodiscard]] bool gives() const noexcept override { return true; }
  [[nodiscard]] Placed fetch(std::uint64_t offset,
                             std::span<std::uint8_t> octets) noexcept override;

 private:
  // A run of octets of one row: where it is on the surface, and which of them are visible.
  struct Run {
    std::uint8_t* at = nullptr;
    std::size_t from = 0, count = 0;
  };
  WindowTarget(std::size_t row_bytes, std::size_t rows, const Surface& surface)
      : row_bytes_(row_bytes), rows_(rows), surface_(surface) {}
  // REQUIRES: the lock.
  [[nodiscard]] Run visible(std::uint64_t row, std::uint64_t column,
                            std::size_t count) const noexcept;

  const std::size_t row_bytes_, rows_;
  const Surface surface_;
  std::mutex mutex_;  // of the view; held for a row at a time
  std::int64_t x_ = 0, y_ = 0;
  std::int64_t left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;  // of the clip, within the surface
};

// A range of a file. The peer's octets go through a few buffers to a thread of the target's own,
// which writes them to the page cache: a slow disk delays the peers that write to this file, and
// nobody else. As a source it gives what the page cache has at once; for the rest that thread reads
// ahead from the disk. Octets that were placed and are not flushed yet are given as they were
// before. Any thread; not in a child of fork().
class FileTarget final : public PlacementTarget {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{256} << 10U;

  // Offset 0 of the range is `file_offset` in the file. The descriptor stays the caller's, must be
  // open for writing (as a source: for reading), and must outlive the target. `buffers` of
  // kBufferBytes each: at least 2.
  //   kInvalidArgument   a negative descriptor, fewer buffers than 2
  //   kNoMemory, kLimitExceeded   no memory, no thread
  [[nodiscard]] static Result<std::shared_ptr<FileTarget>> create(int fd,
                                                                  std::uint64_t file_offset = 0,
                                                                  std::size_t buffers = 16);
  // Writes what is still in the buffers.
  ~FileTarget() override;
  FileTarget(const FileTarget&) = delete;
  FileTarget& operator=(const FileTarget&) = delete;

  // Waits until all that has been placed before is in the file; for it to be on the disk, call
  // fsync() behind it. Returns 0, or the errno of the first write that failed: ENOSPC, EIO... From
  // that one on octets are refused, so the peer's connection ends too.
  // REQUIRES: the caller is not inside place().
  [[nodiscard]] int flush();
  // 0, or the errno of the last read that failed, which has ended a connection. ENODATA: the file
  // ends before the range.
  [[nodiscard]] int read_error() const;

  [[nodiscard]] Placed place(std::uint64_t offset,
                             std::span<const std::uint8_t> octets) noexcept override;
  [[nodiscard]] bool gives() const noexcept override { return true; }
  [[nodiscard]] Placed fetch(std::uint64_t offset,
                             std::span<std::uint8_t> octets) noexcept override;

 private:
  struct Writer;
  explicit FileTarget(std::unique_ptr<Writer> writer);
  const std::unique_ptr<Writer> writer_;
};

}  // namespace weft
#pragma GCC visibility pop
