#include "files/client/equal_by_sums.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/crc32c.h"

namespace weft::files {
namespace {

// The sums of the server, asked for in advance: they come in any order.
class ServerSums {
 public:
  ServerSums(Client& client, std::uint64_t handle, std::uint64_t bytes, std::uint64_t block)
      : client_(client), handle_(handle), bytes_(bytes), block_(block) {}

  [[nodiscard]] Outcome<void> ask_ahead(std::uint64_t number) {
    const std::uint64_t ahead = std::min<std::uint64_t>(kAhead, client_.credits());
    for (; asked_ * block_ < bytes_ && asked_ < number + ahead; ++asked_) {
      const std::uint64_t at = asked_ * block_;
      const auto length = static_cast<std::uint32_t>(std::min(block_, bytes_ - at));
      if (auto ok = client_.post(SumRequest{handle_, at, length}, asked_); !ok) return ok;
    }
    return {};
  }
  // REQUIRES: that block's was asked for, and all before it were taken.
  [[nodiscard]] Outcome<std::uint32_t> take(std::uint64_t number, const std::string& path) {
    std::optional<std::uint32_t>& wanted = sums_[number % kAhead];
    while (!wanted) {
      const auto answer = client_.wait();
      if (!answer) return tl::unexpected(answer.error());
      const bool ours = answer->op == Op::kSum && answer->tag >= number && answer->tag < asked_ &&
                        !sums_[answer->tag % kAhead];
      if (!ours) return client_.broken("the server answered something else");
      if (answer->error != 0) return tl::unexpected(client_.refusal(*answer, path));
      const auto reply = client_.read<SumReply>(*answer);
      if (!reply) return tl::unexpected(reply.error());
      sums_[answer->tag % kAhead] = reply->sum;
    }
    return *std::exchange(wanted, std::nullopt);
  }

 private:
  // As many as the server works at for a client at the same time.
  static constexpr std::uint64_t kAhead = 2;

  Client& client_;
  const std::uint64_t handle_, bytes_, block_;
  std::uint64_t asked_ = 0;
  std::array<std::optional<std::uint32_t>, kAhead> sums_;
};

Outcome<std::uint64_t> compare(ServerSums& sums, int fd, std::uint64_t bytes,
                               std::span<std::uint8_t> room, const std::string& path) {
  for (std::uint64_t at = 0; at < bytes; at += room.size()) {
    const std::uint64_t number = at / room.size();
    if (auto ok = sums.ask_ahead(number); !ok) return tl::unexpected(ok.error());
    const auto part = room.first(std::min<std::uint64_t>(room.size(), bytes - at));
    const ssize_t got = pread(fd, part.data(), part.size(), static_cast<off_t>(at));
    if (got < 0) return failed(errno, path);
    if (static_cast<std::size_t>(got) != part.size()) return at;
    const std::uint32_t ours = crc32c(part);
    const auto theirs = sums.take(number, path);
    if (!theirs) return tl::unexpected(theirs.error());
    if (*theirs != ours) return at;
  }
  return bytes;
}

}  // namespace

Outcome<std::uint64_t> equal_by_sums(Client& client, std::uint64_t handle, int fd,
                                     std::uint64_t bytes, std::span<std::uint8_t> room,
                                     const std::string& path) {
  ServerSums sums(client, handle, bytes, room.size());
  auto equal = compare(sums, fd, bytes, room, path);
  // The next request is to find its own answer.
  while (client.outstanding() != 0) {
    if (const auto rest = client.wait(); !rest) break;
  }
  return equal;
}

}  // namespace weft::files
