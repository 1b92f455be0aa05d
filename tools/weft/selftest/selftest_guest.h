// One connection of `weft selftest --serve`: its protection domain, its memory, its queue pair.
#pragma once

#include <weft/weft.h>

#include <array>
#include <memory>
#include <vector>

#include "weft/command.h"
#include "weft/selftest/offer.h"

namespace weft::selftest {

// Memory between guard octets, registered or not.
class Ground {
 public:
  static constexpr std::size_t kGuardBytes = 4096;

  // Filled with the pattern of an Offer.
  Ground(std::size_t bytes, unsigned seed);
  [[nodiscard]] cli::Outcome<void> open(ProtectionDomain& pd, Access access);
  void close() { region_.reset(); }

  [[nodiscard]] std::uint8_t* data() { return memory_.data() + kGuardBytes; }
  [[nodiscard]] std::size_t size() const { return memory_.size() - 2 * kGuardBytes; }
  [[nodiscard]] Buffer remote() const { return remote_; }
  [[nodiscard]] std::uint32_t lkey() const { return region_->lkey(); }
  [[nodiscard]] bool guards_intact() const;
  [[nodiscard]] bool untouched() const;  // guards and content

 private:
  raw::Bytes memory_;
  std::uint32_t content_crc_;
  std::shared_ptr<MemoryRegion> region_;
  Buffer remote_;
};

class Guest {
 public:
  // Posts receives unless told not to.
  [[nodiscard]] static cli::Outcome<std::unique_ptr<Guest>> create(
      Device& device, std::shared_ptr<CompletionQueue> cq, bool receives);

  [[nodiscard]] Offer offer(std::span<const std::uint8_t> private_data,
                            const Ground& foreign) const;
  [[nodiscard]] const std::shared_ptr<QueuePair>& qp() const { return qp_; }
  // How many buffers are changed that no peer may change, ever.
  [[nodiscard]] std::uint32_t damage() const;

  // A message that has arrived. False: the client is to be disconnected.
  [[nodiscard]] bool take(const WorkCompletion& completion, std::uint32_t damage,
                          std::uint32_t connections);
  // A Read of ours is answered.
  [[nodiscard]] bool take_read(std::uint32_t damage, std::uint32_t connections);

  std::shared_ptr<Connection> connection;

 private:
  Guest();
  [[nodiscard]] cli::Outcome<void> open(Device& device, std::shared_ptr<CompletionQueue> cq,
                                        bool receives);
  [[nodiscard]] bool post_receive(std::uint64_t slot);
  [[nodiscard]] bool obey(const Command& command);
  [[nodiscard]] bool post(SendWr wr, Ground& ground, std::uint32_t bytes);
  [[nodiscard]] bool send_report(Report report, std::uint32_t damage, std::uint32_t connections);

  std::shared_ptr<ProtectionDomain> pd_;
  Ground region_, read_only_, write_only_, revoked_, spare_, receives_, sent_, sink_;
  std::shared_ptr<QueuePair> qp_;
  std::uint32_t reads_open_ = 0, read_bytes_ = 0;
};

}  // namespace weft::selftest
