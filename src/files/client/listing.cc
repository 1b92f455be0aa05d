#include "files/client/listing.h"

#include <chrono>
#include <thread>

#include "files/client/local.h"

namespace weft::files {
namespace {

// A server short of memory for a list is asked again so often, with a pause.
constexpr int kListTries = 50;
constexpr std::chrono::milliseconds kListPause{20};
// How often a list that the server has let go of is begun anew.
constexpr int kListRestarts = 3;
// The entries of one folder may take so much memory: a server decides how many there are.
constexpr std::size_t kMemoryMax = std::size_t{512} << 20U;

}  // namespace

Outcome<std::vector<Named>> list_folder(Client& client, const Registered& memory,
                                        const std::string& path, std::uint16_t links) {
  std::vector<Named> out;
  std::vector<std::uint8_t> page;
  ListRequest request;
  request.path = {path, links};
  request.memory = {address_of(memory.data()), memory.rkey(), kListBytes};
  request.tells_failures = true;
  int restarts = 0;
  std::size_t held = 0;
  for (int tries = 0;;) {
    const auto reply = client.call(request);
    // The server lists too many folders at a time for us, and has let go of this one.
    if (!reply && reply.error().error == ESTALE && request.cursor != 0 &&
        ++restarts <= kListRestarts) {
      out.clear();
      held = 0;
      request.cursor = 0;
      continue;
    }
    if (!reply && reply.error().error == EAGAIN && ++tries < kListTries) {
      std::this_thread::sleep_for(kListPause);
      continue;  // the server is short of memory just now
    }
    if (!reply) return tl::unexpected(reply.error());
    tries = 0;
    if (reply->bytes > kListBytes) return failed(EPROTO, path);
    const bool ends = reply->cursor == 0;
    if (!ends && (reply->bytes == 0 || reply->cursor == request.cursor)) {
      return failed(EPROTO, path, "the server's list does not end");
    }
    // The server can write into this memory at any time: what is checked must be what is used.
    page.assign(memory.data(), memory.data() + reply->bytes);
    std::span<const std::uint8_t> entries(page);
    while (const auto entry = decode_entry(entries)) {
      const bool too_long = entry->name.size() > kNameBytes;
      // A server that gives such names means harm.
      if (!is_safe_but_long(entry->name))
        return failed(EPROTO, path, "an illegal name in the server's list");
      out.push_back({std::string(entry->name),
                     too_long ? Attributes::of_failure(ENAMETOOLONG) : entry->attributes});
      held += sizeof(Named) + entry->name.size();
      if (held > kMemoryMax) return failed(EPROTO, path, "a list of more than 512 MiB");
    }
    if (!entries.empty()) return failed(EPROTO, path, "the server's list is broken");
    if (ends) return out;
    request.cursor = reply->cursor;
  }
}

}  // namespace weft::files
