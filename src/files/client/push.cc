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

Push::Push(ServerAddress server, CopyOptions options, CopyWatcher watcher)
    : link_(std::move(server), options.retry_seconds, [this](bool same) { connected(same); }),
      options_(std::move(options)),
      watcher_(std::move(watcher)) {}

void Push::connected(bool same) {
  // An earlier run of the server may have lost what it had not flushed.
  if (!same && !unflushed_.empty()) names_lost_ = true;
  there_.reset();  // what a list said may have changed since
}

void Push::report(const Failed& why) {
  ++totals_.failures;
  if (watcher_.failed) watcher_.failed(why);
}

namespace {

bool is_root(const std::string& to) { return to.empty() || to == "/" || to == "."; }

}  // namespace

// A link to a folder counts as one where links are followed.
Outcome<Attributes> Push::find_folder(const std::string& to) {
  const std::string folder = is_root(to) ? "/" : to + "/";
  const auto reply = link_.ask(StatRequest{named(folder)});
  if (!reply) return tl::unexpected(reply.error());
  if (!S_ISDIR(reply->attributes.mode)) return failed(ENOTDIR, to);
  return reply->attributes;
}

std::string Push::here(const std::string& below) const { return join(source_name_, below); }

Outcome<void> Push::put(const std::string& from, const std::string& to) {
  const bool contents_only = from.ends_with('/');
  links_ = kLinksAnywhere;
  there_.reset();
  unflushed_.clear();
  names_lost_ = false;
  source_ = os::Fd(open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  source_name_ = from;
  struct stat s {};
  if (!source_ || fstat(source_.get(), &s) != 0) return failed(errno, from);
  if (options_.archive && !link_.client().has_objects()) {
    return failed(EOPNOTSUPP, link_.server().host,
                  "the server's release has no -a; upgrade Weft there");
  }
  if (options_.acls && !link_.client().has_acls()) {
    return failed(EOPNOTSUPP, link_.server().host,
                  "the server's release has no -A; upgrade Weft there");
  }
  const bool into = to.empty() || to.ends_with('/') || find_folder(to).has_value();
  if (!link_.alive()) return failed(ECONNRESET, link_.server().host);
  if (S_ISREG(s.st_mode)) {
    auto ok = put_file(source_.get(), into ? join(to, last_name(from)) : to, true);
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
  const auto made = make_folder(target, s.st_mode);
  return made ? put_tree(target, *made) : tl::unexpected(made.error());
}

// Folder by folder, each opened by its name below the source: a deep tree needs few descriptors.
Outcome<void> Push::put_files(const std::string& to, const std::optional<Attributes>& root) {
  extras_.clear(options_);
  first_names_.clear();
  claimed_.clear();
  further_names_.clear();
  not_copied_.clear();
  finished_.clear();
  queued_.clear();
  folders_.assign(1, {std::string(), root});
  Outcome<void> ok;
  while (ok && !folders_.empty()) {
    const Folder one = std::move(folders_.back());
    folders_.pop_back();
    auto put = put_folder(one, join(to, one.below));
    if (put) continue;
    if (!link_.alive()) ok = put;
    if (ok) report(put.error());
  }
  if (ok) ok = put_queued();
  auto finished = finish_streams();
  return ok ? finished : ok;
}

// Where a connection broke, the whole tree is looked at once more: files that were there before may
// be gone with the server, or the disk, that was there before.
Outcome<void> Push::put_tree(const std::string& to, const std::optional<Attributes>& root) {
  // But for the first one of each stream.
  const auto connections = [this] {
    unsigned out = link_.connections();
    helpers_.for_each([&out](const Push& one) { out += one.link_.connections() - 1; });
    return out;
  };
  const std::uint64_t earlier = totals_.failures;  // of other sources
  for (unsigned starts = 1;; ++starts) {
    const unsigned before = connections();
    const CopyTotals known = totals_;
    // Each name is looked for again, at the run of the server that flushes it.
    if (starts > 1) names_lost_ = false;
    if (auto ok = put_files(to, root); !ok) return ok;
    if (starts > 1) {  // these were counted the first time
      totals_.folders = known.folders;
      totals_.links = known.links;
      totals_.skipped = known.skipped;
      const std::uint64_t again = totals_.failures - known.failures + earlier;
      totals_.failures = std::max(known.failures, again);
    }
    const bool asked = options_.only_newer && !options_.dry_run;
    if (!asked || connections() == before || starts == ServerLink::kStarts) break;
    looks_again_ = true;
  }
  looks_again_ = false;
  if (auto ok = make_names(); !ok) return ok;
  // All else is done also where nothing may be removed, or a flush failed: a later copy leaves the
  // permissions of folders that are there alone.
  auto removed = options_.remove ? remove_extras(to) : Outcome<void>();
  if (!removed && !link_.alive()) return removed;
  auto ok = finish_folders();
  if (ok && !options_.dry_run) {
    ok = flush_folders();
    if (!ok && !link_.alive()) return ok;
    const auto set = set_modes();
    if (ok) ok = set;
  }
  return removed ? ok : removed;
}

// With its attributes if it was there already.
Outcome<std::optional<Attributes>> Push::make_folder(const std::string& to, std::uint32_t mode) {
  ++totals_.folders;
  if (is_root(to)) return find_folder(to);
  if (options_.dry_run) return would_make_folder(to);
  if (options_.durable) unflushed_.note_parent_of(to);
  MakeDirectoryRequest request;
  request.path = named(to);
  // The owner may write to it until all is in it.
  request.mode = (mode & 0777U) | 0700U;
  const unsigned connections = link_.connections();
  const auto reply = link_.ask(request);
  bool made = reply.has_value();
  if (!made && reply.error().error == EEXIST && link_.connections() != connections) {
    // A reply was lost: it may be there by the first request. Somebody else's is not empty.
    const auto names = link_.list(to, links_);
    made = names && names->empty();
  }
  if (made && request.mode != (mode & 0777U) && !options_.archive)
    modes_.emplace_back(to, mode & 0777U);
  if (made) {
    tell(CopyStep::Kind::kFolder, to);
    return std::nullopt;
  }
  if (reply.error().error != EEXIST) return tl::unexpected(reply.error());
  const auto there = find_folder(to);
  if (!there) return tl::unexpected(link_.alive() ? reply.error() : there.error());
  if (!options_.archive) tell(CopyStep::Kind::kSame, to, 0, 0, true);
  return *there;
}

// The inner folders first: an outer one may be closed to its owner afterwards.
Outcome<void> Push::set_modes() {
  for (auto at = modes_.rbegin(); at != modes_.rend(); ++at) {
    SetRequest request;
    request.path = named(at->first);
    request.what = kSetMode | (options_.durable ? kSetFlush : 0U);
    request.mode = at->second;
    const auto reply = link_.ask(request);
    if (!reply && !link_.alive()) return tl::unexpected(reply.error());
    if (!reply) report(reply.error());
  }
  modes_.clear();
  return {};
}

Outcome<void> Push::put_folder(const Folder& one, const std::string& to) {
  const std::string& below = one.below;
  const FolderStream folder(os::Fd(open_folder_below(source_.get(), below)));
  if (!folder.good()) return failed(errno, here(below));
  if (options_.archive) finished_.emplace_back(one, to);
  if (options_.durable) unflushed_.note(to);
  if (options_.only_newer) {
    if (auto ok = look_there(to); !ok) return ok;
  }
  std::unordered_set<std::string> names;
  const auto shared = std::make_shared<const std::string>(below);
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(folder.stream());
    if (entry == nullptr && errno != 0) return failed(errno, here(below));
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    names.insert(name);
    const auto ok = put_entry(dirfd(folder.stream()), name, shared, join(to, name));
    if (!ok && !link_.alive()) return ok;
    if (!ok && options_.archive) not_copied_.insert(join(to, name));
    if (!ok) report(ok.error());
  }
  if (below.empty() && names.empty()) extras_.note_empty_source();
  return options_.remove ? note_extras(below, to, names) : Outcome<void>();
}

Outcome<void> Push::put_entry(int folder, const std::string& name,
                              const std::shared_ptr<const std::string>& below,
                              const std::string& to) {
  const std::string local = join(*below, name);
  struct stat s {};
  if (fstatat(folder, name.c_str(), &s, AT_SYMLINK_NOFOLLOW) != 0) {
    return failed(errno, here(local));
  }
  if (options_.filter.hides(*below, name, S_ISDIR(s.st_mode))) return {};
  if (options_.archive && !is_unfinished(name) && is_further_name(folder, name.c_str(), to))
    return {};
  if (S_ISLNK(s.st_mode)) {
    return put_link_of(folder, name.c_str(), to);
  }
  if (S_ISDIR(s.st_mode)) {
    auto made = make_folder(to, s.st_mode);
    if (!made) return tl::unexpected(made.error());
    folders_.push_back({local, *made});
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
  return take_file(folder, s, {below, name, to});
}

// One list in place of a question for each file. Where there is no list, each file is asked for.
Outcome<void> Push::look_there(const std::string& to) {
  there_.reset();
  auto list = link_.list(to, links_);
  if (!list && !link_.alive()) return tl::unexpected(list.error());
  // Nothing is there, and nothing will be before all of it has been asked for.
  const bool missing = !list && options_.dry_run && list.error().error == ENOENT;
  if (list || missing) there_.emplace();
  if (!list) return {};
  for (Named& one : *list) there_->emplace(std::move(one.name), one.attributes);
  return {};
}

Outcome<bool> Push::is_there(const std::string& to, const Version& version) {
  const auto is_same = [&](const Attributes& a) {
    return S_ISREG(a.mode) && a.size == version.size && a.mtime_ns == version.mtime_ns &&
           !is_another(a, version);
  };
  if (there_) {
    const auto at = there_->find(last_name(to));
    return at != there_->end() && is_same(at->second);
  }
  const auto reply = link_.ask(StatRequest{named(to)});
  if (!reply && !link_.alive()) return tl::unexpected(reply.error());
  return reply && is_same(reply->attributes);
}

namespace {

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

}  // namespace

// A connection that breaks is made anew. A small file is sent from its beginning then: what the
// server had of it went with the connection. A file that changes meanwhile is begun anew, once.
// `asks`: whether the server has it already.
Outcome<void> Push::put_file(int fd, const std::string& to, bool asks) {
  bool changed_before = false;
  for (unsigned starts = 1;;) {
    const std::uint64_t expected = totals_.expected;
    auto ok = try_file(fd, to, asks);
    if (ok) return ok;
    totals_.expected = expected;
    if (link_.alive()) {
      if (ok.error().error != ESTALE || std::exchange(changed_before, true)) return ok;
      continue;
    }
    if (starts++ == ServerLink::kStarts) return ok;
    if (auto again = link_.reconnect(ok.error()); !again) return again;
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

Outcome<void> Push::try_file(int fd, const std::string& to, bool asks) {
  Version version;
  LocalLease lease;
  if (options_.strict) {
    if (auto ok = wait_for_lease(fd, lease, to); !ok) return ok;
  }
  if (const int error = version_of(fd, version); error != 0) return failed(error, to);
  if (asks && options_.only_newer) {
    const auto there = is_there(to, version);
    if (!there) return tl::unexpected(there.error());
    const bool flushes = *there && options_.flush_same && !options_.dry_run;
    auto flushed = flushes ? flush_there(to, version.mtime_ns) : Outcome<void>();
    if (*there && (flushed || !link_.alive())) {
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
    changed = link_.alive() && keeps_changed(sent, options_, totals_, watcher_);
  }
  if (!sent && !changed) {
    // The server forgets what it has of the file.
    if (link_.alive()) static_cast<void>(link_.client().call(CloseRequest{made->handle}));
    return sent;
  }
  CommitRequest commit;
  commit.handle = made->handle;
  commit.mode = mode;
  commit.mtime_ns = changed ? time_of_changed(version.mtime_ns) : version.mtime_ns;
  if (options_.durable) commit.flags = kCommitDurable | kCommitNoName;
  const auto done = link_.client().call(commit, to);
  if (!done) return tl::unexpected(done.error());
  if (options_.durable) unflushed_.note_parent_of(to);
  ++totals_.files;
  tell(CopyStep::Kind::kCopied, to, version.size, commit.mtime_ns);
  return {};
}

}  // namespace weft::files
