#include "store/push.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include "base/crc32c.h"
#include "store/blocks.h"
#include "store/path_name.h"

namespace weft::store {
namespace {

constexpr unsigned kStarts = 10;  // of one file, on so many connections
// What costs less to send again than to keep and compare.
constexpr std::uint64_t kResumeMin = std::uint64_t{4} << 20U;
constexpr int kBusyTries = 30;
constexpr std::chrono::milliseconds kBusyPause{100};

std::int64_t mtime_of(const struct stat& s) {
  return std::int64_t{s.st_mtim.tv_sec} * 1000000000 + s.st_mtim.tv_nsec;
}

}  // namespace

Outcome<void> Push::connect() {
  // The one before stays until this one is whole: callers ask it whether it lives.
  auto client = Client::connect(server_);
  if (!client) return tl::unexpected(client.error());
  if (!(*client)->writable()) return tl::unexpected(explain(EROFS, server_.host));
  auto memory =
      Registered::create((*client)->pd(), std::size_t{kBlocks} * kBlockBytes,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = Registered();  // before the domain that it belongs to
  client_ = std::move(*client);
  memory_ = std::move(*memory);
  return {};
}

Outcome<void> Push::reconnect(const Failed& why) {
  return connect_again(why, options_.retry_seconds, [this] { return connect(); });
}

// For requests that may be sent twice.
Outcome<Reply> Push::ask(const Request& request) {
  for (unsigned starts = 1;; ++starts) {
    auto reply = client_->call(request);
    if (reply || client_->alive() || starts == kStarts) return reply;
    if (auto again = reconnect(reply.error()); !again) return tl::unexpected(again.error());
  }
}

void Push::report(const Failed& why) {
  ++totals_.failures;
  if (watcher_.failed) watcher_.failed(why);
}

// A link to a folder counts as one where links are followed.
bool Push::is_remote_folder(const std::string& path) {
  Request request;
  request.op = Op::kStat;
  const std::string folder = path + "/";
  request.path = folder;
  request.links = links_;
  const auto reply = ask(request);
  return reply && S_ISDIR(reply->attributes.mode);
}

Outcome<void> Push::put(const std::string& from, const std::string& to) {
  const bool contents_only = from.ends_with('/');
  links_ = kLinksAnywhere;
  const Fd source(open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat s {};
  if (!source || fstat(source.get(), &s) != 0) return failed(errno, from);
  const bool into = to.empty() || to.ends_with('/') || is_remote_folder(to);
  if (!client_->alive()) return failed(ECONNRESET, server_.host);
  if (S_ISREG(s.st_mode)) return put_file(source.get(), into ? join(to, last_name(from)) : to);
  if (!S_ISDIR(s.st_mode)) return failed(EINVAL, from, "is neither a file nor a folder");
  if (!options_.recursive) return failed(EISDIR, from, "is a folder; use -r to copy folders");
  std::string target = to;
  if (into && !contents_only) target = join(to, last_name(from));
  while (target.ends_with('/')) target.pop_back();
  if (target.size() > kPathBytes) return failed(ENAMETOOLONG, target);
  // The user says where the tree goes, and may do so by a link. Below it nobody else may.
  links_ = static_cast<std::uint16_t>(target.size());
  if (auto ok = make_folder(target, s.st_mode); !ok) return ok;
  return put_folder(source.get(), from, target);
}

Outcome<void> Push::make_folder(const std::string& to, std::uint32_t mode) {
  ++totals_.folders;
  if (to.empty() || to == "/" || to == ".") return {};
  Request request;
  request.op = Op::kMakeDirectory;
  request.path = to;
  request.links = links_;
  request.mode = mode & 0777U;
  const auto reply = ask(request);
  if (reply || (reply.error().error == EEXIST && is_remote_folder(to))) return {};
  return tl::unexpected(reply.error());
}

Outcome<void> Push::put_folder(int folder, const std::string& from, const std::string& to) {
  DIR* dir = fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir == nullptr) return failed(errno, from);
  Outcome<void> ok;
  std::unordered_set<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(dir);
    // Nothing may be removed for the want of a name that could not be read.
    if (entry == nullptr && errno != 0) ok = failed(errno, from);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    names.insert(name);
    ok = put_entry(folder, entry->d_name, join(from, name), join(to, name));
    if (!ok && !client_->alive()) break;
    if (!ok) report(ok.error());
    ok = {};
  }
  closedir(dir);
  return ok && options_.remove ? remove_others(to, names) : ok;
}

// As Fetch::remove_others().
Outcome<void> Push::remove_others(const std::string& to,
                                  const std::unordered_set<std::string>& keep) {
  auto there = list_folder(*client_, memory_, to, links_);
  for (unsigned starts = 1; !there && !client_->alive() && starts < kStarts; ++starts) {
    if (auto again = reconnect(there.error()); !again) return again;
    there = list_folder(*client_, memory_, to, links_);
  }
  if (!there) return tl::unexpected(there.error());
  for (const Named& one : *there) {
    if (keep.contains(one.name) || one.name.starts_with(".weft-")) continue;
    Request request;
    request.op = Op::kRemove;
    const std::string path = join(to, one.name);
    request.path = path;
    request.links = links_;
    if (S_ISDIR(one.attributes.mode)) request.flags = kRemoveDirectory;
    const auto reply = ask(request);
    if (!reply && !client_->alive()) return tl::unexpected(reply.error());
    if (reply || reply.error().error == ENOENT) {  // asked twice, or somebody was faster
      ++totals_.removed;
    } else {
      report(reply.error());
    }
  }
  return {};
}

// Another link, or a file, of that name gives way; a folder does not.
Outcome<void> Push::put_link(const Request& request) {
  auto reply = ask(request);
  if (reply) return {};
  if (reply.error().error != EEXIST) return tl::unexpected(reply.error());
  Request look;
  look.op = Op::kReadLink;
  look.path = request.path;
  look.links = links_;
  const auto now = ask(look);
  if (now && now->target == request.target) return {};
  if (!client_->alive()) return tl::unexpected(now.error());
  Request old;
  old.op = Op::kRemove;
  old.path = request.path;
  old.links = links_;
  const auto gone = ask(old);
  if (!gone && gone.error().error != ENOENT) return tl::unexpected(gone.error());
  reply = ask(request);
  if (!reply) return tl::unexpected(reply.error());
  return {};
}

Outcome<void> Push::put_link_of(int folder, const char* name, const std::string& from,
                                const std::string& to) {
  char target[kPathBytes + 1];
  const ssize_t length = readlinkat(folder, name, target, sizeof target);
  if (length < 0) return failed(errno, from);
  Request request;
  request.op = Op::kSymlink;
  request.path = to;
  request.links = links_;
  request.target = {target, static_cast<std::size_t>(length)};
  if (auto ok = put_link(request); !ok) return ok;
  ++totals_.links;
  return {};
}

Outcome<void> Push::put_entry(int folder, const char* name, const std::string& from,
                              const std::string& to) {
  struct stat s {};
  if (fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) != 0) return failed(errno, from);
  if (S_ISLNK(s.st_mode)) return put_link_of(folder, name, from, to);
  if (!S_ISDIR(s.st_mode) && !S_ISREG(s.st_mode)) {
    ++totals_.skipped;
    return {};
  }
  // Something else may have taken the name meanwhile. Opening a pipe must not wait for a writer,
  // and what was opened decides.
  const Fd fd(openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd || fstat(fd.get(), &s) != 0) return failed(errno, from);
  if (S_ISREG(s.st_mode)) return put_file(fd.get(), to);
  if (!S_ISDIR(s.st_mode)) {
    ++totals_.skipped;
    return {};
  }
  if (auto ok = make_folder(to, s.st_mode); !ok) return ok;
  return put_folder(fd.get(), from, to);
}

Outcome<bool> Push::is_there(const std::string& to, std::uint64_t size, std::int64_t mtime_ns) {
  Request request;
  request.op = Op::kStat;
  request.path = to;
  request.links = links_;
  const auto reply = ask(request);
  if (!reply && !client_->alive()) return tl::unexpected(reply.error());
  return reply && S_ISREG(reply->attributes.mode) && reply->attributes.size == size &&
         reply->attributes.mtime_ns == mtime_ns;
}

// A connection that breaks is made anew. A small file is sent from its beginning then: what the
// server had of it went with the connection.
Outcome<void> Push::put_file(int fd, const std::string& to) {
  for (unsigned starts = 1;; ++starts) {
    const std::uint64_t expected = totals_.expected;
    auto ok = try_file(fd, to);
    if (ok || client_->alive() || starts == kStarts) return ok;
    totals_.expected = expected;
    if (auto again = reconnect(ok.error()); !again) return again;
  }
}

Outcome<void> Push::try_file(int fd, const std::string& to) {
  struct stat s {};
  if (fstat(fd, &s) != 0) return failed(errno, to);
  const auto size = static_cast<std::uint64_t>(s.st_size);
  if (options_.only_newer) {
    const auto there = is_there(to, size, mtime_of(s));
    if (!there) return tl::unexpected(there.error());
    if (*there) {
      ++totals_.skipped;
      return {};
    }
  }
  auto made = begin(to, size, mtime_of(s));
  if (!made) return tl::unexpected(made.error());
  const std::uint64_t handle = made->handle;
  std::uint64_t from = 0;
  Outcome<void> sent;
  if (made->there != 0) sent = compare(fd, handle, made->there, to, from);
  totals_.expected += size - from;
  Request end;
  end.path = to;
  end.handle = handle;
  if (sent) sent = send_blocks(fd, handle, from, size, to);
  if (sent && options_.verify) {
    from = 0;
    sent = compare(fd, handle, size, to, from);
    if (sent && from != size) {
      sent = failed(EIO, to, "what the server has differs from the file; it was not kept");
    }
  }
  if (auto& ok = sent; !ok) {
    end.op = Op::kClose;  // the server forgets what it has of the file
    if (client_->alive()) static_cast<void>(client_->call(end));
    return ok;
  }
  end.op = Op::kCommit;
  end.mode = s.st_mode & 0777U;
  end.mtime_ns = mtime_of(s);
  if (options_.durable) end.flags = kCommitDurable;
  const auto done = client_->call(end);
  if (!done) return tl::unexpected(done.error());
  ++totals_.files;
  return {};
}

// A large file is begun so that another attempt, of this run or a later one, can go on with it.
Outcome<Reply> Push::begin(const std::string& to, std::uint64_t size, std::int64_t mtime_ns) {
  Request create;
  create.op = options_.resume && size >= kResumeMin ? Op::kDraft : Op::kCreate;
  create.path = to;
  create.links = links_;
  create.offset = size;
  create.identity = static_cast<std::uint64_t>(mtime_ns);
  // The server may not have seen yet that our connection before this one is gone. If it is somebody
  // else who sends the same file, it is not resumed.
  for (int tries = 0;; ++tries) {
    auto made = client_->call(create);
    if (made || made.error().error != EBUSY || create.op != Op::kDraft) return made;
    if (tries == kBusyTries) create.op = Op::kCreate;
    std::this_thread::sleep_for(kBusyPause);
  }
}

// How far the octets that the server has are those of the file. Blocks arrive there in any order,
// so its length alone says nothing.
Outcome<void> Push::compare(int fd, std::uint64_t handle, std::uint64_t there,
                            const std::string& to, std::uint64_t& from) {
  const std::span<std::uint8_t> room(memory_.data(), std::size_t{kBlocks} * kBlockBytes);
  while (from < there) {
    Request request;
    request.op = Op::kSum;
    request.path = to;
    request.handle = handle;
    request.offset = from;
    request.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(room.size(), there - from));
    const auto sum = client_->call(request);
    if (!sum) return tl::unexpected(sum.error());
    const ssize_t got = pread(fd, room.data(), request.length, static_cast<off_t>(from));
    if (got < 0) return failed(errno, to);
    if (static_cast<std::size_t>(got) != request.length ||
        crc32c(room.first(request.length)) != sum->sum) {
      return {};
    }
    from += request.length;
  }
  return {};
}

Outcome<void> Push::send_blocks(int fd, std::uint64_t handle, std::uint64_t from,
                                std::uint64_t size, const std::string& to) {
  std::uint32_t busy = 0;  // bit: slot
  std::uint64_t issued = from;
  Outcome<void> result;
  while (client_->alive() && ((issued < size && result) || busy != 0)) {
    std::uint32_t slot = 0;
    while (slot < kBlocks && (busy >> slot & 1U) != 0) ++slot;
    if (result && issued < size && slot < kBlocks) {
      std::uint8_t* at = memory_.data() + std::size_t{slot} * kBlockBytes;
      const auto want =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(kBlockBytes, size - issued));
      const ssize_t got = pread(fd, at, want, static_cast<off_t>(issued));
      if (got != static_cast<ssize_t>(want)) {
        result = got < 0 ? failed(errno, to)
                         : failed(ESTALE, to,
                                  "the file became shorter while it was sent; run this again");
        continue;
      }
      Request request;
      request.op = Op::kWrite;
      request.tag = slot;
      request.handle = handle;
      request.offset = issued;
      request.memory = {address_of(at), memory_.rkey(), want};
      if (auto ok = client_->post(request); !ok) return ok;
      busy |= 1U << slot;
      issued += want;
      continue;
    }
    const auto reply = client_->wait();
    if (!reply) return tl::unexpected(reply.error());
    if (reply->op != Op::kWrite || reply->tag >= kBlocks || (busy >> reply->tag & 1U) == 0) {
      return failed(EPROTO, to);
    }
    busy &= ~(1U << reply->tag);
    if (reply->error != 0 && result) result = tl::unexpected(explain(reply->error, to));
    totals_.bytes += reply->bytes;
    if (watcher_.progress) watcher_.progress(totals_);
  }
  return result;
}

}  // namespace weft::store
