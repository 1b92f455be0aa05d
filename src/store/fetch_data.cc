// The octets of a fetch: small files many at a time, large ones in blocks.
#include <unistd.h>

#include <algorithm>

#include "base/crc32c.h"
#include "store/blocks.h"
#include "store/fetch.h"

namespace weft::store {
namespace {

constexpr std::uint32_t kSmallBytes = 64U << 10U;

static_assert(std::size_t{kBlocks} * kBlockBytes <= Fetch::kMemoryBytes);
static_assert(std::size_t{kCredits} * kSmallBytes <= Fetch::kMemoryBytes);

Failed changed(const std::string& path) {
  return {ESTALE, path, "the file became shorter while it was read; run this again"};
}

}  // namespace

// Everything in files_: the small ones first, since they share the connection's latency.
Outcome<void> Fetch::get_queued() {
  const auto large = std::stable_partition(
      files_.begin(), files_.end(), [](const File& f) { return f.attributes.size <= kSmallBytes; });
  const auto small_count = static_cast<std::size_t>(large - files_.begin());
  if (!options_.verify) {
    auto ok = get_small(small_count);
    if (!ok) return ok;
  }
  for (std::size_t i = options_.verify ? 0 : small_count; i < files_.size(); ++i) {
    auto ok = get_large(files_[i]);
    if (ok) continue;
    if (!client_->alive()) return ok;
    report(ok.error());
  }
  files_.clear();
  return {};
}

// One request a file: open, contents and attributes in one reply.
Outcome<void> Fetch::get_small(std::size_t count) {
  std::vector<std::size_t> slot_of(count);
  std::vector<std::size_t> free_slots;
  for (std::size_t i = client_->credits(); i-- > 0;) free_slots.push_back(i);
  std::vector<bool> done(count, false);
  std::size_t next = 0;
  std::size_t finished = 0;
  const auto collect = [&]() -> Outcome<void> {
    const auto reply = client_->wait();
    if (!reply) return tl::unexpected(reply.error());
    if (reply->op == Op::kClose) return {};
    if (reply->op != Op::kOpen || reply->tag >= next || done[reply->tag]) return failed(EPROTO);
    const std::size_t slot = slot_of[reply->tag];
    free_slots.push_back(slot);
    done[reply->tag] = true;
    ++finished;
    auto ok = small_arrived(*reply, memory_.data() + slot * kSmallBytes);
    if (!ok) report(ok.error());
    if (watcher_.progress) watcher_.progress(totals_);
    return {};
  };
  while (finished < count) {
    Outcome<void> ok;
    if (next < count && !free_slots.empty() && client_->outstanding() < client_->credits()) {
      slot_of[next] = free_slots.back();
      free_slots.pop_back();
      Request request;
      request.op = Op::kOpen;
      request.tag = next;
      request.path = files_[next].path;
      request.links = links_;
      request.memory = {address_of(memory_.data() + slot_of[next] * kSmallBytes), memory_.rkey(),
                        kSmallBytes};
      ++next;
      ok = client_->post(request);
    } else {
      ok = collect();
    }
    if (ok) continue;
    if (auto again = reconnect(ok.error()); !again) return again;
    // Those whose replies are lost are fetched like large ones.
    for (std::size_t i = 0; i < count; ++i) {
      if (done[i]) continue;
      if (auto one = get_large(files_[i]); !one) {
        if (!client_->alive()) return one;
        report(one.error());
      }
    }
    return {};
  }
  while (client_->outstanding() != 0) {
    if (auto ok = collect(); !ok) return ok;
  }
  return {};
}

Outcome<void> Fetch::small_arrived(const Reply& reply, const std::uint8_t* data) {
  const File& file = files_[reply.tag];
  if (reply.error != 0) return tl::unexpected(explain(reply.error, file.path));
  if (reply.handle != 0) {
    // It has grown since the folder was read. The server's handle goes with the connection.
    Request close;
    close.op = Op::kClose;
    close.handle = reply.handle;
    static_cast<void>(client_->post(close));
    return failed(ESTALE, file.path, "the file grew while the tree was read; run this again");
  }
  if (reply.bytes != reply.attributes.size || reply.bytes > kSmallBytes) {
    return tl::unexpected(changed(file.path));
  }
  std::uint64_t at = 0;
  auto part = Part::open(file.folder->get(), file.name, reply.attributes, false, at);
  if (!part) return tl::unexpected(part.error());
  auto ok = part->write(data, reply.bytes, 0);
  if (ok) ok = part->finish(reply.attributes);
  if (!ok) {
    part->discard();
    return ok;
  }
  totals_.bytes += reply.bytes;
  ++totals_.files;
  return {};
}

Outcome<std::uint64_t> Fetch::open_remote(const std::string& path, Attributes& found) {
  Request request;
  request.op = Op::kOpen;
  request.path = path;
  request.links = links_;
  const auto reply = client_->call(request);
  if (!reply) return tl::unexpected(reply.error());
  found = reply->attributes;
  return reply->handle;
}

// Before memory is used for something else, what was asked for has to arrive.
tl::unexpected<Failed> Fetch::drain(const Failed& why) {
  while (client_->outstanding() != 0) {
    if (const auto rest = client_->wait(); !rest) break;
  }
  return tl::unexpected(why);
}

// Blocks of one file, kBlocks in flight, to `sink` in the order of the file.
Outcome<void> Fetch::read_range(std::uint64_t handle, std::uint64_t from, std::uint64_t size,
                                const std::string& path, const Sink& sink) {
  const std::uint32_t depth = std::min(kBlocks, client_->credits());
  const std::uint32_t block = std::min(kBlockBytes, client_->max_io());
  std::vector<std::uint32_t> arrived(depth, 0);
  std::uint64_t issued = from;
  std::uint64_t taken = from;
  const auto slot_of = [&](std::uint64_t at) { return ((at - from) / block) % depth; };
  while (taken < size) {
    while (issued < size && issued - taken < std::uint64_t{depth} * block) {
      Request request;
      request.op = Op::kRead;
      request.tag = issued;
      request.handle = handle;
      request.offset = issued;
      const std::size_t slot = slot_of(issued);
      const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(block, size - issued));
      request.memory = {address_of(memory_.data() + slot * block), memory_.rkey(), bytes};
      arrived[slot] = 0;
      if (auto ok = client_->post(request); !ok) return ok;
      issued += bytes;
    }
    const auto reply = client_->wait();
    if (!reply) return tl::unexpected(reply.error());
    const bool ours = reply->op == Op::kRead && reply->tag >= taken && reply->tag < issued &&
                      (reply->tag - from) % block == 0;
    if (!ours) return failed(EPROTO, path);
    const auto want = std::min<std::uint64_t>(block, size - reply->tag);
    if (reply->error != 0 || reply->bytes != want) {
      const Failed why = reply->error != 0 ? explain(reply->error, path) : changed(path);
      return drain(why);
    }
    arrived[slot_of(reply->tag)] = static_cast<std::uint32_t>(want);
    while (taken < issued && arrived[slot_of(taken)] != 0) {
      const std::size_t slot = slot_of(taken);
      const std::uint32_t bytes = std::exchange(arrived[slot], 0);
      if (auto ok = sink(memory_.data() + slot * block, bytes, taken); !ok)
        return drain(ok.error());
      taken += bytes;
      totals_.bytes += bytes;
      if (watcher_.progress) watcher_.progress(totals_);
    }
  }
  return {};
}

Outcome<void> Fetch::stream(const std::string& path, int fd) {
  Attributes found;
  const auto handle = open_remote(path, found);
  if (!handle) return tl::unexpected(handle.error());
  totals_.expected += found.size;
  const auto ok = read_range(*handle, 0, found.size, path,
                             [fd](const std::uint8_t* data, std::size_t bytes, std::uint64_t) {
                               const int error = write_fully(fd, data, bytes);
                               return error == 0 ? Outcome<void>() : failed(error, "output");
                             });
  if (ok) ++totals_.files;
  return ok;
}

Outcome<void> Fetch::get_large(const File& file) {
  for (;;) {
    std::uint64_t at = 0;
    auto part = Part::open(file.folder->get(), file.name, file.attributes, options_.resume, at);
    if (!part) return tl::unexpected(part.error());
    auto ok = try_large(file, *part, at);
    if (ok) {
      ++totals_.files;
      return {};
    }
    if (client_->alive()) return ok;
    // The part stays, for this loop or for a later run.
    if (auto again = reconnect(ok.error()); !again) return again;
  }
}

Outcome<void> Fetch::try_large(const File& file, Part& part, std::uint64_t at) {
  Attributes found;
  const auto handle = open_remote(file.path, found);
  if (!handle) return tl::unexpected(handle.error());
  if (found.size != file.attributes.size || found.mtime_ns != file.attributes.mtime_ns) {
    part.discard();
    return failed(ESTALE, file.path, "the file changed at the server; run this again");
  }
  auto ok = read_range(*handle, at, found.size, file.path,
                       [&part](const std::uint8_t* data, std::size_t bytes, std::uint64_t offset) {
                         return part.write(data, bytes, offset);
                       });
  if (ok && options_.verify) {
    ok = verify(*handle, part.fd(), file);
    if (!ok && client_->alive()) part.discard();
  }
  if (*handle != 0 && client_->alive() && client_->outstanding() == 0) {
    Request close;
    close.op = Op::kClose;
    close.handle = *handle;
    static_cast<void>(client_->call(close));
  }
  return ok ? part.finish(file.attributes) : ok;
}

// What lies on this disk, against what lies on the server's.
Outcome<void> Fetch::verify(std::uint64_t handle, int fd, const File& file) {
  std::uint8_t* data = memory_.data();
  for (std::uint64_t at = 0; at < file.attributes.size; at += kMemoryBytes) {
    const auto bytes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(kMemoryBytes, file.attributes.size - at));
    Request request;
    request.op = Op::kSum;
    request.handle = handle;
    request.offset = at;
    request.length = bytes;
    request.path = file.path;
    const auto reply = client_->call(request);
    if (!reply) return tl::unexpected(reply.error());
    if (pread(fd, data, bytes, static_cast<off_t>(at)) != static_cast<ssize_t>(bytes)) {
      return failed(EIO, file.name);
    }
    if (crc32c({data, bytes}) != reply->sum) {
      return failed(EBADMSG, file.path, "the copy differs from the server's file; run this again");
    }
  }
  return {};
}

}  // namespace weft::store
