// The octets of a fetch: small files many at a time, large ones in blocks.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include "files/client/blocks.h"
#include "files/client/equal_by_sums.h"
#include "files/client/fetch.h"
#include "files/client/server_link.h"
#include "files/protocol/path_name.h"
#include "os/report_of_close.h"

namespace weft::files {
namespace {

constexpr std::uint32_t kSmallBytes = 64U << 10U;

static_assert(std::size_t{kBlocks} * kBlockBytes <= Fetch::kMemoryBytes);
static_assert(std::size_t{kCredits} * kSmallBytes <= Fetch::kMemoryBytes);

Failed changed(const std::string& path) {
  return {ESTALE, path, "the file became shorter while it was read; run this again"};
}

}  // namespace

// Everything in files_. Behind a failure those of them stay there that have not been looked at.
Outcome<void> Fetch::get_here() {
  auto ok = get_each();
  again_.clear();
  std::erase_if(files_, [&](const File& file) { return ok || file.done; });
  return ok;
}

// The small ones first, since they share the connection's latency.
Outcome<void> Fetch::get_each() {
  const auto large = std::stable_partition(
      files_.begin(), files_.end(), [](const File& f) { return f.attributes.size <= kSmallBytes; });
  const auto small_count = static_cast<std::size_t>(large - files_.begin());
  if (!is_each_opened()) {
    if (auto ok = get_small(small_count); !ok) return ok;
    // Small files that changed while they were read.
    for (const std::size_t i : std::exchange(again_, {})) {
      if (auto ok = get_one(files_[i]); !ok) return ok;
    }
  }
  for (std::size_t i = is_each_opened() ? 0 : small_count; i < files_.size(); ++i) {
    if (auto ok = get_one(files_[i]); !ok) return ok;
  }
  return {};
}

// A failure is one of the connection.
Outcome<void> Fetch::get_one(File& file) {
  const auto ok = get_large(file);
  if (!ok && !client_->alive()) return ok;
  if (!ok) report(ok.error());
  file.done = true;
  return {};
}

// One request a file: open, contents and attributes in one reply.
Outcome<void> Fetch::get_small(std::size_t count) {
  std::vector<std::size_t> slot_of(count);
  std::vector<std::size_t> free_slots;
  for (std::size_t i = client_->credits(); i-- > 0;) free_slots.push_back(i);
  std::vector<bool> answered(count, false);
  std::size_t next = 0;
  std::size_t finished = 0;
  const auto collect = [&]() -> Outcome<void> {
    const auto answer = client_->wait();
    if (!answer) return tl::unexpected(answer.error());
    if (answer->op == Op::kClose) return {};
    if (answer->op != Op::kOpen || answer->tag >= next || answered[answer->tag]) {
      return client_->broken("the server answered something else");
    }
    const std::size_t file = answer->tag;
    const std::size_t slot = slot_of[file];
    free_slots.push_back(slot);
    answered[file] = true;
    ++finished;
    auto ok = small_arrived(*answer, memory_.data() + slot * kSmallBytes);
    const bool again = !ok && ok.error().error == ESTALE;
    if (again) again_.push_back(file);
    if (!ok && !again) report(ok.error());
    files_[file].done = !again;
    if (watcher_.progress) watcher_.progress(totals_);
    return {};
  };
  while (finished < count) {
    Outcome<void> ok;
    if (next < count && !free_slots.empty() && client_->outstanding() < client_->credits()) {
      slot_of[next] = free_slots.back();
      free_slots.pop_back();
      std::uint8_t* const room = memory_.data() + slot_of[next] * kSmallBytes;
      pace_->wait(files_[next].attributes.size);
      const OpenRequest request{{address_of(room), memory_.rkey(), kSmallBytes},
                                {files_[next].path, links_}};
      ok = client_->post(request, next++);
    } else {
      ok = collect();
    }
    if (ok) continue;
    if (auto again = reconnect(ok.error()); !again) return again;
    // Those whose replies are lost are fetched like large ones.
    for (std::size_t i = 0; i < count; ++i) {
      if (answered[i]) continue;
      if (auto one = get_one(files_[i]); !one) return one;
    }
    return {};
  }
  // Files that were closed again. Nothing is lost with their replies but the connection.
  while (client_->outstanding() != 0) {
    if (auto ok = collect(); !ok) return reconnect(ok.error());
  }
  return {};
}

Outcome<void> Fetch::small_arrived(const Answer& answer, const std::uint8_t* data) {
  const File& file = files_[answer.tag];
  if (answer.error != 0) return tl::unexpected(explain(answer.error, file.path));
  const auto found = client_->read<OpenReply>(answer);
  if (!found) return tl::unexpected(found.error());
  const OpenReply& reply = *found;
  if (reply.handle != 0) {
    // It has grown since the folder was read. The server's handle goes with the connection.
    static_cast<void>(client_->post(CloseRequest{reply.handle}));
    return failed(ESTALE, file.path, "the file grew while the tree was read");
  }
  const Attributes& attributes = reply.state.attributes;
  if (reply.bytes != attributes.size || reply.bytes > kSmallBytes) {
    return tl::unexpected(changed(file.path));
  }
  if (reply.state.level == kLevelNone) return failed(ESTALE, file.path);
  std::uint64_t at = 0;
  auto part = Part::open(*destination_, join(*file.below, file.name), attributes, false, at);
  if (!part) return tl::unexpected(part.error());
  auto ok = part->write(data, reply.bytes, 0);
  if (ok) ok = part->finish(attributes, options_.durable);
  if (!ok) {
    part->discard();
    return ok;
  }
  totals_.bytes += reply.bytes;
  ++totals_.files;
  tell(CopyStep::Kind::kCopied, join(*file.below, file.name), attributes);
  return {};
}

// Once its times can tell versions apart. Nobody waits for a file that is written to all the time.
Outcome<Fetch::Opened> Fetch::open_remote(const std::string& path) {
  FileState before;
  for (int tries = 0, changes = 0;; ++tries) {
    const auto reply = client_->call(OpenRequest{{}, {path, links_}});
    if (!reply) return tl::unexpected(reply.error());
    const Opened opened{reply->handle, reply->state};
    if (!same_token(std::exchange(before, opened.state), opened.state)) ++changes;
    const bool waits = tries < kSettleTries && changes < kSettleChanges;
    if (opened.state.level != kLevelNone || !waits) return opened;
    let_go(opened);
    std::this_thread::sleep_for(kSettlePause);
  }
}

// Closes a file whose version nobody asks for. A connection that fails here fails the next call.
void Fetch::let_go(const Opened& opened) {
  if (opened.handle == 0 || !client_->alive() || client_->outstanding() != 0) return;
  static_cast<void>(client_->call(CloseRequest{opened.handle}));
}

// Closes the file behind all that was read of it.
//   ESTALE   it is not, or perhaps not, the version that was opened
Outcome<void> Fetch::close_same(const Opened& opened, const std::string& path) {
  if (opened.handle == 0) return {};  // nothing was read
  const auto reply = client_->call(CloseRequest{opened.handle}, path);
  if (!reply) return tl::unexpected(reply.error());
  const bool known =
      options_.strict ? reply->state.level == kLevelLease : opened.state.level != kLevelNone;
  if (known && same_token(opened.state, reply->state)) return {};
  return failed(ESTALE, path, "the file changed while it was read; run this again");
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
  const std::uint32_t block = std::min(kBlockBytes, client_->max_io());
  // With a limit no more is under way than what a quarter of a second brings: all that is asked for
  // and paid is lost with its connection.
  const std::uint32_t depth = std::min({kBlocks, client_->credits(), pace_->blocks_at_once(block)});
  std::vector<std::uint32_t> arrived(depth, 0);
  std::uint64_t issued = from;
  std::uint64_t taken = from;
  const auto slot_of = [&](std::uint64_t at) { return ((at - from) / block) % depth; };
  while (taken < size) {
    while (issued < size && issued - taken < std::uint64_t{depth} * block) {
      ReadRequest request;
      request.handle = handle;
      request.offset = issued;
      const std::size_t slot = slot_of(issued);
      const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(block, size - issued));
      request.memory = {address_of(memory_.data() + slot * block), memory_.rkey(), bytes};
      arrived[slot] = 0;
      pace_->wait(bytes);
      if (auto ok = client_->post(request, issued); !ok) return ok;
      issued += bytes;
    }
    const auto answer = client_->wait();
    if (!answer) return tl::unexpected(answer.error());
    const bool ours = answer->op == Op::kRead && answer->tag >= taken && answer->tag < issued &&
                      (answer->tag - from) % block == 0;
    if (!ours) return failed(EPROTO, path);
    if (answer->error != 0) return drain(explain(answer->error, path));
    const auto reply = client_->read<ReadReply>(*answer);
    if (!reply) return tl::unexpected(reply.error());
    const auto want = std::min<std::uint64_t>(block, size - answer->tag);
    if (reply->bytes != want) return drain(changed(path));
    arrived[slot_of(answer->tag)] = static_cast<std::uint32_t>(want);
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
  if (path.empty()) return failed(EISDIR, "the served folder");
  auto opened = open_remote(path);
  if (opened) {
    if (auto leased = take_lease(*opened, path); !leased) return leased;
  }
  if (!opened) return tl::unexpected(opened.error());
  const std::uint64_t size = opened->state.attributes.size;
  totals_.expected += size;
  auto ok = read_range(opened->handle, 0, size, path,
                       [fd](const std::uint8_t* data, std::size_t bytes, std::uint64_t) {
                         const int error = write_fully(fd, data, bytes);
                         return error == 0 ? Outcome<void>() : failed(error, "output");
                       });
  if (ok) ok = close_same(*opened, path);
  const int error = ok ? os::report_of_close(fd) : 0;
  if (error != 0) ok = failed(error, "output");
  if (ok) ++totals_.files;
  return ok;
}

// A file that changes meanwhile is begun anew, once. Connections that bring nothing of it are not
// made for ever.
Outcome<void> Fetch::get_large(const File& file) {
  bool changed_before = false;
  for (unsigned starts = 1;; ++starts) {
    const std::uint64_t before = totals_.bytes;
    auto ok = try_large(file);
    if (ok) {
      ++totals_.files;
      return {};
    }
    if (client_->alive()) {
      if (ok.error().error != ESTALE || std::exchange(changed_before, true)) return ok;
      continue;
    }
    // The part stays, for this loop or for a later run.
    if (totals_.bytes != before) starts = 1;
    if (starts == ServerLink::kStarts) return ok;
    if (auto again = reconnect(ok.error()); !again) return again;
  }
}

Outcome<void> Fetch::try_large(const File& file) {
  auto opened = open_remote(file.path);
  if (!opened) return tl::unexpected(opened.error());
  if (auto leased = take_lease(*opened, file.path); !leased) {
    let_go(*opened);
    return leased;
  }
  const auto sparse = has_holes(*opened, file.path);
  if (!sparse) {
    let_go(*opened);
    return tl::unexpected(sparse.error());
  }
  opened->sparse = *sparse;
  Attributes attributes = opened->state.attributes;
  std::uint64_t there = 0;
  // One with holes is begun anew: to compare them would take longer than to leave them out.
  const bool resume = options_.resume && !*sparse;
  auto part = Part::open(*destination_, join(*file.below, file.name), attributes, resume, there);
  if (!part) {
    let_go(*opened);
    return tl::unexpected(part.error());
  }
  auto ok = options_.archive ? carry_details(*opened, *part, file.path) : Outcome<void>();
  if (ok) ok = fill(*opened, *part, there, file.path);
  if (ok) {
    ok = close_same(*opened, file.path);
    if (keeps_changed(ok, options_, totals_, watcher_)) {
      attributes.mtime_ns = time_of_changed(attributes.mtime_ns);
      ok = {};
    }
  } else {
    let_go(*opened);
  }
  if (!ok && ok.error().error == ESTALE) part->discard();
  if (ok) ok = part->finish(attributes, options_.durable);
  if (ok) tell(CopyStep::Kind::kCopied, join(*file.below, file.name), attributes);
  return ok;
}

Outcome<void> Fetch::fill(const Opened& opened, Part& part, std::uint64_t there,
                          const std::string& path) {
  const std::uint64_t size = opened.state.attributes.size;
  std::uint64_t from = 0;
  // How many of the part's first octets are those of the server's file.
  const auto compare = [&](std::uint64_t bytes) {
    const std::span<std::uint8_t> room(memory_.data(), kMemoryBytes);
    return equal_by_sums(*client_, opened.handle, part.fd(), bytes, room, path);
  };
  if (there != 0) {
    const auto equal = compare(there);
    if (!equal) return tl::unexpected(equal.error());
    from = *equal;
    if (auto ok = part.keep(from); !ok) return ok;
  }
  part.pass_cache(options_.direct);
  const auto sink = [&part](const std::uint8_t* data, std::size_t bytes, std::uint64_t offset) {
    return part.write(data, bytes, offset);
  };
  auto ok = opened.sparse ? read_data(opened, path, sink)
                          : read_range(opened.handle, from, size, path, sink);
  part.pass_cache(false);
  if (ok && options_.verify) {
    if (ok = part.complete(size); !ok) return ok;
    const auto equal = compare(size);
    if (!equal) return tl::unexpected(equal.error());
    if (*equal != size) {
      part.discard();
      return failed(EBADMSG, path, "the copy differs from the server's file; run this again");
    }
  }
  return ok;
}

}  // namespace weft::files
