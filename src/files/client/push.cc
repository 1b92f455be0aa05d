#include "files/client/push.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "files/client/blocks.h"
#include "files/client/local_lease.h"
#include "files/protocol/file_attributes.h"
#include "files/protocol/folder_stream.h"
#include "files/protocol/path_name.h"
#include "os/clock.h"
#include "os/fd.h"

namespace weft::files {
namespace {

std::int64_t mtime_of(const struct stat& s) { return os::ns_of(s.st_mtim); }

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
  // An earlier run of the server may have lost what it had not flushed.
  const bool same = client_ == nullptr || client_->verifier() == (*client)->verifier();
  if (!same && !unflushed_.empty()) names_lost_ = true;
  memory_ = Registered();  // before the domain that it belongs to
  client_ = std::move(*client);
  memory_ = std::move(*memory);
  knows_there_ = false;  // what a list of the one before says may have changed since
  return {};
}

Outcome<void> Push::reconnect(const Failed& why) {
  return connect_again(why, options_.retry_seconds, [this] { return connect(); });
}

void Push::report(const Failed& why) {
  ++totals_.failures;
  if (watcher_.failed) watcher_.failed(why);
}

// A link to a folder counts as one where links are followed.
bool Push::is_remote_folder(const std::string& path) {
  const std::string folder = path + "/";
  const auto reply = ask(StatRequest{named(folder)});
  return reply && S_ISDIR(reply->attributes.mode);
}

std::string Push::here(const std::string& below) const { return join(source_name_, below); }

Outcome<void> Push::put(const std::string& from, const std::string& to) {
  const bool contents_only = from.ends_with('/');
  links_ = kLinksAnywhere;
  knows_there_ = false;
  unflushed_.clear();
  names_lost_ = false;
  source_ = os::Fd(open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  source_name_ = from;
  struct stat s {};
  if (!source_ || fstat(source_.get(), &s) != 0) return failed(errno, from);
  if (options_.archive && !client_->has_objects()) {
    return failed(EOPNOTSUPP, server_.host, "the server's release has no -a; upgrade Weft there");
  }
  const bool into = to.empty() || to.ends_with('/') || is_remote_folder(to);
  if (!client_->alive()) return failed(ECONNRESET, server_.host);
  if (S_ISREG(s.st_mode)) {
    auto ok = put_file(source_.get(), into ? join(to, last_name(from)) : to);
    return ok ? flush_folders() : ok;
  }
  if (!S_ISDIR(s.st_mode)) return failed(EINVAL, from, "is neither a file nor a folder");
  if (!options_.recursive) return failed(EISDIR, from, "is a folder; use -r to copy folders");
  std::string target = to;
  if (into && !contents_only) target = join(to, last_name(from));
  while (target.ends_with('/')) target.pop_back();
  if (target.size() > kPathBytes) return failed(ENAMETOOLONG, target);
  // The user says where the tree goes, and may do so by a link. Below it nobody else may.
  links_ = static_cast<std::uint16_t>(target.size());
  modes_.clear();
  if (auto ok = make_folder(target, s.st_mode); !ok) return ok;
  return put_tree(target);
}

// Folder by folder, each opened by its name below the source: a deep tree needs few descriptors.
Outcome<void> Push::put_tree(const std::string& to) {
  extras_.clear();
  first_names_.clear();
  claimed_.clear();
  further_names_.clear();
  not_copied_.clear();
  finished_.clear();
  folders_.assign(1, std::string());
  while (!folders_.empty()) {
    const std::string below = folders_.back();
    folders_.pop_back();
    auto ok = put_folder(below, join(to, below));
    if (!ok && !client_->alive()) return ok;
    if (!ok) report(ok.error());
  }
  if (auto ok = make_names(); !ok) return ok;
  if (options_.remove) {
    if (auto ok = remove_extras(to); !ok) return ok;
  }
  if (options_.dry_run) return {};
  if (auto ok = finish_folders(); !ok) return ok;
  if (auto ok = flush_folders(); !ok) return ok;
  return set_modes();
}

Outcome<void> Push::make_folder(const std::string& to, std::uint32_t mode) {
  ++totals_.folders;
  if (to.empty() || to == "/" || to == ".") return {};
  if (options_.dry_run) return would_make_folder(to);
  if (options_.durable) unflushed_.note_parent_of(to);
  MakeDirectoryRequest request;
  request.path = named(to);
  // The owner may write to it until all is in it.
  request.mode = (mode & 0777U) | 0700U;
  const auto reply = ask(request);
  if (reply && request.mode != (mode & 0777U) && !options_.archive)
    modes_.emplace_back(to, mode & 0777U);
  if (reply) tell(CopyStep::Kind::kFolder, to);
  if (reply || (reply.error().error == EEXIST && is_remote_folder(to))) return {};
  return tl::unexpected(reply.error());
}

// The inner folders first: an outer one may be closed to its owner afterwards.
Outcome<void> Push::set_modes() {
  for (auto at = modes_.rbegin(); at != modes_.rend(); ++at) {
    SetRequest request;
    request.path = named(at->first);
    request.what = kSetMode | (options_.durable ? kSetFlush : 0U);
    request.mode = at->second;
    const auto reply = ask(request);
    if (!reply && !client_->alive()) return tl::unexpected(reply.error());
    if (!reply) report(reply.error());
  }
  modes_.clear();
  return {};
}

Outcome<void> Push::put_folder(const std::string& below, const std::string& to) {
  const FolderStream folder(os::Fd(open_folder_below(source_.get(), below)));
  if (!folder.good()) return failed(errno, here(below));
  if (options_.archive) finished_.emplace_back(below, to);
  if (options_.only_newer) look_there(to);
  std::unordered_set<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(folder.stream());
    if (entry == nullptr && errno != 0) return failed(errno, here(below));
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    names.insert(name);
    const auto ok = put_entry(dirfd(folder.stream()), name, below, join(to, name));
    if (!ok && !client_->alive()) return ok;
    if (!ok && options_.archive) not_copied_.insert(join(to, name));
    if (!ok) report(ok.error());
  }
  if (below.empty() && names.empty()) extras_.note_empty_source();
  return options_.remove ? note_extras(below, to, names) : Outcome<void>();
}

Outcome<void> Push::put_entry(int folder, const std::string& name, const std::string& below,
                              const std::string& to) {
  const std::string local = join(below, name);
  struct stat s {};
  if (fstatat(folder, name.c_str(), &s, AT_SYMLINK_NOFOLLOW) != 0) {
    return failed(errno, here(local));
  }
  if (options_.filter.hides(below, name, S_ISDIR(s.st_mode))) return {};
  if (options_.archive && !is_unfinished(name) && is_further_name(folder, name.c_str(), to))
    return {};
  if (S_ISLNK(s.st_mode)) {
    auto ok = put_link_of(folder, name.c_str(), to);
    const bool finishes = ok && options_.archive && !options_.dry_run;
    return finishes ? finish_link(folder, name.c_str(), to) : ok;
  }
  if (S_ISDIR(s.st_mode)) {
    if (auto ok = make_folder(to, s.st_mode); !ok) return ok;
    folders_.push_back(local);
    return {};
  }
  if (options_.archive && !S_ISREG(s.st_mode) && !S_ISSOCK(s.st_mode)) {
    return failed(EOPNOTSUPP, here(local), "a device or FIFO, which put and sync do not carry");
  }
  if (!S_ISREG(s.st_mode) || is_unfinished(name)) {
    ++totals_.skipped;
    if (!is_unfinished(name)) tell(CopyStep::Kind::kSkipped, to);
    return {};
  }
  // Something else may have taken the name meanwhile. Opening a pipe must not wait for a writer,
  // and what was opened decides.
  const os::Fd fd(openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd || fstat(fd.get(), &s) != 0) return failed(errno, here(local));
  if (S_ISREG(s.st_mode)) return put_file(fd.get(), to);
  ++totals_.skipped;
  not_copied_.insert(to);
  return {};
}

// One list in place of a question for each file. Where there is no list, each file is asked for.
void Push::look_there(const std::string& to) {
  there_.clear();
  auto list = list_folder(*client_, memory_, to, links_);
  // Nothing is there, and nothing will be before all of it has been asked for.
  const bool missing = !list && options_.dry_run && list.error().error == ENOENT;
  knows_there_ = list.has_value() || missing;
  if (!list) return;
  for (Named& one : *list) there_.emplace(std::move(one.name), one.attributes);
}

Outcome<bool> Push::is_there(const std::string& to, const Version& version) {
  const auto is_same = [&](const Attributes& a) {
    return S_ISREG(a.mode) && a.size == version.size && a.mtime_ns == version.mtime_ns &&
           !is_another(a, version);
  };
  if (knows_there_) {
    const auto at = there_.find(last_name(to));
    return at != there_.end() && is_same(at->second);
  }
  const auto reply = ask(StatRequest{named(to)});
  if (!reply && !client_->alive()) return tl::unexpected(reply.error());
  return reply && is_same(reply->attributes);
}

namespace {

// A file that takes up little room may be compressed instead.
bool has_hole(int fd, off_t size) {
  const off_t hole = lseek(fd, 0, SEEK_HOLE);
  return hole >= 0 && hole < size;
}

// Once it can tell versions apart. Nobody waits for a file that is written to all the time.
// Returns an errno.
int version_of(int fd, Version& out) {
  for (int tries = 0, changes = 0;; ++tries) {
    const Version before = out;
    const std::int64_t looked_at = os::clock_ns(CLOCK_REALTIME);
    struct stat s {};
    if (fstat(fd, &s) != 0) return errno;
    const std::int64_t changed = os::ns_of(s.st_ctim);
    out.size = static_cast<std::uint64_t>(s.st_size);
    out.device = s.st_dev;
    out.inode = s.st_ino;
    out.mtime_ns = mtime_of(s);
    out.ctime_ns = changed;
    out.mode = s.st_mode & 0777U;
    out.sparse = bytes_on_disk(s) + kHoleMin < out.size && has_hole(fd, s.st_size);
    out.fresh = is_fresh(fd, changed, looked_at);
    if (out != before) ++changes;
    if (!out.fresh || tries == kSettleTries || changes == kSettleChanges) return 0;
    std::this_thread::sleep_for(kSettlePause);
  }
}

// With --strict nobody writes the file until it is sent. A writer is waited for as long as a change
// would be.
Outcome<void> wait_for_lease(int fd, LocalLease& lease, const std::string& name) {
  for (int tries = 0;; ++tries) {
    const int error = lease.take(fd);
    if (error == 0) return {};
    if (error == EAGAIN && tries < kSettleTries) {
      std::this_thread::sleep_for(kSettlePause);
      continue;
    }
    std::string why;
    if (error == EAGAIN) why = "somebody has it open for writing, and --strict takes no such file";
    if (error == EACCES) why = "no lease: the file belongs to somebody else (--strict)";
    if (error == EINVAL) why = "this file system has no leases, which --strict needs";
    return failed(error, name, why);
  }
}

// Whether the file is still the one that was sent.
Outcome<void> check_version(int fd, const Version& before, const std::string& name) {
  Version now;
  if (const int error = version_of(fd, now); error != 0) return failed(error, name);
  now.sparse = before.sparse;  // a file system may find or lose holes by itself
  if (now == before && !before.fresh) return {};
  return failed(ESTALE, name, "the file changed while it was sent; run this again");
}

}  // namespace

// A connection that breaks is made anew. A small file is sent from its beginning then: what the
// server had of it went with the connection. A file that changes meanwhile is begun anew, once.
Outcome<void> Push::put_file(int fd, const std::string& to) {
  bool changed_before = false;
  for (unsigned starts = 1;;) {
    const std::uint64_t expected = totals_.expected;
    auto ok = try_file(fd, to);
    if (ok) return ok;
    totals_.expected = expected;
    if (client_->alive()) {
      if (ok.error().error != ESTALE || std::exchange(changed_before, true)) return ok;
      continue;
    }
    if (starts++ == kStarts) return ok;
    if (auto again = reconnect(ok.error()); !again) return again;
  }
}

// The server has its contents.
Outcome<void> Push::put_same(int fd, const std::string& to, const Version& version) {
  ++totals_.skipped;
  bool changed = false;
  if (options_.archive) {
    const auto details = details_here(fd, to);
    if (!details) return tl::unexpected(details.error());
    const auto updated = update_details(*details, to, false);
    if (!updated) return tl::unexpected(updated.error());
    changed = *updated;
  }
  tell(changed ? CopyStep::Kind::kChanged : CopyStep::Kind::kSame, to, version.size,
       version.mtime_ns);
  return {};
}

Outcome<void> Push::try_file(int fd, const std::string& to) {
  Version version;
  LocalLease lease;
  if (options_.strict) {
    if (auto ok = wait_for_lease(fd, lease, to); !ok) return ok;
  }
  if (const int error = version_of(fd, version); error != 0) return failed(error, to);
  if (options_.only_newer) {
    const auto there = is_there(to, version);
    if (!there) return tl::unexpected(there.error());
    const bool flushes = *there && options_.durable && !options_.dry_run;
    auto flushed = flushes ? flush_there(to, version.mtime_ns) : Outcome<void>();
    if (*there && (flushed || !client_->alive())) {
      return flushed ? put_same(fd, to, version) : flushed;
    }
  }
  if (options_.dry_run) return would_put_file(to, version);
  const auto made = begin(to, version);
  if (!made) return tl::unexpected(made.error());
  auto sent = send_file(fd, version, *made, to);
  std::uint32_t mode = version.mode;
  if (sent && options_.archive) {
    const auto details = details_here(fd, to);
    sent = details ? carry_details(*made, *details, to) : tl::unexpected(details.error());
    if (details) mode = details->attributes.mode & kModeBits;
  }
  bool changed = false;
  if (sent) {
    sent = check_version(fd, version, to);
    if (sent && options_.strict && !lease.is_held()) {
      sent = failed(ESTALE, to, "the file was opened for writing while it was sent");
    }
    changed = client_->alive() && keeps_changed(sent, options_, totals_, watcher_);
  }
  if (!sent && !changed) {
    // The server forgets what it has of the file.
    if (client_->alive()) static_cast<void>(client_->call(CloseRequest{made->handle}));
    return sent;
  }
  CommitRequest commit;
  commit.handle = made->handle;
  commit.mode = mode;
  commit.mtime_ns = changed ? time_of_changed(version.mtime_ns) : version.mtime_ns;
  if (options_.durable) commit.flags = kCommitDurable;
  const auto done = client_->call(commit, to);
  if (!done) return tl::unexpected(done.error());
  ++totals_.files;
  tell(CopyStep::Kind::kCopied, to, version.size, commit.mtime_ns);
  return {};
}

}  // namespace weft::files
