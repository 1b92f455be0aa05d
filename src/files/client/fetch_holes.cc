// Files with holes on their way from a server: the holes stay there.
#include <algorithm>

#include "files/client/blocks.h"
#include "files/client/fetch.h"

namespace weft::files {
namespace {

// A smaller hole is read like data: what is behind it would cost a request of its own.
constexpr std::uint64_t kLeastGap = kBlockBytes;

}  // namespace

// A file that takes up little room may be compressed instead.
Outcome<bool> Fetch::has_holes(const Opened& opened, const std::string& path) {
  const Attributes& a = opened.state.attributes;
  if (a.size <= kHoleMin || a.blocks >= (a.size - kHoleMin) / 512) return false;
  const auto reply = client_->call(ExtentsRequest{opened.handle, 0}, path);
  if (reply) {
    const Extent& first = reply->extents.front();
    return reply->count == 0 || first.offset != 0 || first.bytes < a.size;
  }
  // A file system that cannot tell.
  const int error = reply.error().error;
  if (client_->alive() && (error == EINVAL || error == EOPNOTSUPP)) return false;
  return tl::unexpected(reply.error());
}

// Reads the data between the holes, to `sink` in the order of the file.
Outcome<void> Fetch::read_data(const Opened& opened, const std::string& path, const Sink& sink) {
  const std::uint64_t size = opened.state.attributes.size;
  std::uint64_t from = 0;  // of the data that is known and not yet read
  std::uint64_t to = 0;
  std::uint64_t moved = 0;
  const auto read_known = [&] {
    moved += to - from;
    return read_range(opened.handle, from, to, path, sink);
  };
  for (std::uint64_t at = 0; at < size;) {
    const auto reply = client_->call(ExtentsRequest{opened.handle, at}, path);
    if (!reply) return tl::unexpected(reply.error());
    for (std::uint32_t i = 0; i < reply->count; ++i) {
      const Extent& one = reply->extents[i];
      if (one.offset < at) return failed(EPROTO, path, "the server's extents are out of order");
      if (one.offset >= size) break;
      if (one.offset - to >= kLeastGap) {
        if (auto ok = read_known(); !ok) return ok;
        from = one.offset;
      }
      to = std::min(size, one.offset + one.bytes);
    }
    if (reply->next == 0) break;
    if (reply->next <= at) return failed(EPROTO, path, "the server's extents do not end");
    at = reply->next;
  }
  if (auto ok = read_known(); !ok) return ok;
  totals_.expected -= std::min(totals_.expected, size - moved);
  return {};
}

}  // namespace weft::files
