// Protection domains, memory regions and memory windows.
//
// Registration records base, length, rights, domain and IOVA. It does not pin pages and does not
// depend on RLIMIT_MEMLOCK. STags (lkey == rkey) are unpredictable and reused late (RFC
// 5042 6.1.1). All members may be called from any thread.
#pragma once

#include <weft/result.h>
#include <weft/types.h>

#include <memory>

#pragma GCC visibility push(default)
namespace weft {

class Device;
class QueuePair;
struct QpOptions;
class SharedReceiveQueue;
struct SrqOptions;

class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;  // deregisters, as deregister() does

  [[nodiscard]] virtual void* addr() const = 0;
  [[nodiscard]] virtual std::size_t length() const = 0;
  [[nodiscard]] virtual std::uint64_t iova()
      const = 0;  // TO of the first byte; addr() unless chosen
  [[nodiscard]] virtual std::uint32_t lkey() const = 0;
  [[nodiscard]] virtual std::uint32_t rkey() const = 0;
  [[nodiscard]] virtual Access access() const = 0;

  // Final when it returns: no packet reads or changes the memory afterwards. A Read being served
  // from it ends with Terminate 0/1/00; or with the connection, if responses were lined up already.
  //   kBusy   windows are bound to this region: unbind them first; nothing changed
  [[nodiscard]] virtual Status deregister() = 0;

  // Changes any of domain (not null), memory (addr not null: then the keys change too) and rights.
  //   kInvalidArgument, kBusy, kNoMemory, system_error(EFAULT)   nothing changed
  [[nodiscard]] virtual Status reregister(class ProtectionDomain* pd, void* addr,
                                          std::size_t length, const Access* access) = 0;
};

class MemoryWindow {
 public:
  enum class Type : std::uint8_t { kType1 = 1, kType2 = 2 };
  virtual ~MemoryWindow() = default;  // unbinds and frees

  [[nodiscard]] virtual Type type() const = 0;
  [[nodiscard]] virtual std::uint32_t rkey()
      const = 0;  // of the last bind; not yet valid before one
  [[nodiscard]] virtual bool bound() const = 0;
};

class ProtectionDomain {
 public:
  virtual ~ProtectionDomain() = default;
  [[nodiscard]] virtual Device& device() const = 0;
  // Regions, windows, QPs and SRQs that still use this domain.
  [[nodiscard]] virtual std::size_t users() const = 0;

  // `addr` stays the caller's and must outlive the region. Length 0 is legal.
  //
  // A peer ends a region by Send with Invalidate only if the region has kRemoteInvalidate, no
  // window is bound to it, and its domain has no second QP (RFC 5040 5.3, 8.1.1). A window of type
  // 2 may be invalidated by the peer of the QP that bound it. Any other STag in a Send with
  // Invalidate ends the connection by a Terminate, and the memory stays valid.
  //   kInvalidArgument   null addr with a length, wrap-around, remote write or atomic rights
  //                      without local write, or kRemoteInvalidate without a remote right
  //   kLimitExceeded     limits::kMemoryRegions are registered
  //   system_error(EFAULT)   some of it is not mapped, cannot be read, or cannot be written and
  //                          `access` has kLocalWrite. Up to 64 KiB every page is touched. Of
  //                          larger ranges the kernel tells what is mapped; before Linux 6.11 it
  //                          does not tell all rights. Not looked at with kUnchecked
  //   kNoMemory              the pages of a range up to 64 KiB could not be had
  [[nodiscard]] virtual Result<std::shared_ptr<MemoryRegion>> register_memory(void* addr,
                                                                              std::size_t length,
                                                                              Access access) = 0;
  // As above, with the first byte reached as TO `iova` (SGEs use it too).
  [[nodiscard]] virtual Result<std::shared_ptr<MemoryRegion>> register_memory_iova(
      void* addr, std::size_t length, std::uint64_t iova, Access access) = 0;
  [[nodiscard]] virtual Result<std::shared_ptr<MemoryWindow>> create_window(
      MemoryWindow::Type type) = 0;

  // See queue_pair.h.
  [[nodiscard]] virtual Result<std::shared_ptr<QueuePair>> create_qp(const QpOptions& options) = 0;
  [[nodiscard]] virtual Result<std::shared_ptr<SharedReceiveQueue>> create_srq(
      const SrqOptions& options) = 0;
};

}  // namespace weft
#pragma GCC visibility pop
