// Copies from a server with --archive and --strict: attributes, further names, special files,
// leases.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "files/client/blocks.h"
#include "files/client/fetch.h"
#include "files/protocol/open_beneath.h"
#include "files/protocol/path_name.h"
#include "os/clock.h"
#include "os/fd.h"

namespace weft::files {
namespace {

constexpr std::uint32_t kXattrPageBytes = 64U << 10U;

Failed no_lease(int error, const std::string& path) {
  switch (error) {
    case EAGAIN:
      return {EAGAIN, path, "somebody has it open for writing, and --strict takes no such file"};
    case EACCES:
      return {EACCES, path, "no lease: the file does not belong to the server's user (--strict)"};
    case EINVAL:
      return {EINVAL, path, "the server's file system has no leases, which --strict needs"};
    default: return explain(static_cast<std::uint32_t>(error), path);
  }
}

// The file with this name in the folder, as it is; -1 with errno.
os::Fd find_in(int folder, const std::string& name) {
  return os::Fd(openat(folder, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
}

}  // namespace

// From here to CLOSE nobody writes the file. A writer is waited for as long as a change would be.
Outcome<void> Fetch::take_lease(Opened& opened, const std::string& path) {
  if (!options_.strict) return {};
  // Without a handle there is nothing to take a lease of.
  if (!client_->has_objects() || opened.handle == 0) {
    return failed(EOPNOTSUPP, server_.host, "the server's release has no --strict; upgrade it");
  }
  for (int tries = 0;; ++tries) {
    const auto reply = client_->call(LeaseRequest{opened.handle}, path);
    if (reply) {
      opened.state = reply->state;
      return {};
    }
    if (!client_->alive()) return tl::unexpected(reply.error());
    if (reply.error().error != EAGAIN || tries == kSettleTries) {
      return tl::unexpected(no_lease(reply.error().error, path));
    }
    std::this_thread::sleep_for(kSettlePause);
  }
}

// `handle` 0: of what `path` names.
Outcome<Details> Fetch::details_of(std::uint64_t handle, const std::string& path) {
  XattrsRequest request;
  request.handle = handle;
  request.memory = {address_of(memory_.data()), memory_.rkey(), kXattrPageBytes};
  request.acls = options_.acls;
  if (handle == 0) request.path = {path, links_};
  for (int tries = 0;; ++tries) {
    const auto reply = client_->call(request, path);
    if (!reply && reply.error().error == EAGAIN && tries < kSettleTries) {
      std::this_thread::sleep_for(kSettlePause);  // the server is short of memory just now
      continue;
    }
    if (!reply && reply.error().error == E2BIG) {
      return failed(E2BIG, path, "its extended attributes take more than 64 KiB");
    }
    if (!reply) return tl::unexpected(reply.error());
    if (reply->bytes > kXattrPageBytes) return failed(EPROTO, path);
    // The server can write into this memory at any time: what is checked must be what is used.
    const std::vector<std::uint8_t> page(memory_.data(), memory_.data() + reply->bytes);
    auto xattrs = decode_xattrs(page);
    if (!xattrs) return failed(EPROTO, path, "the server's list of extended attributes is broken");
    for (const auto& [name, value] : *xattrs) {
      if (!is_carried(name) && !(options_.acls && is_acl(name)))
        return failed(EPROTO, path, "an extended attribute that is not copied");
    }
    return Details{reply->state.attributes, std::move(*xattrs), client_->tells_trusted(),
                   options_.acls};
  }
}

// For the version that is copied: CLOSE compares the time of the last change, which they change.
Outcome<void> Fetch::carry_details(const Opened& opened, Part& part, const std::string& path) {
  auto details = details_of(opened.handle, path);
  if (!details) return tl::unexpected(details.error());
  const Attributes& a = details->attributes;
  const Attributes& before = opened.state.attributes;
  const bool same =
      a.file_id == before.file_id && a.ctime_ns == before.ctime_ns && a.size == before.size;
  if (!same && !options_.allow_changing) {
    return failed(ESTALE, path, "the file changed while it was read; run this again");
  }
  part.carry(std::move(*details));
  return {};
}

// For a file that has the right contents.
Outcome<void> Fetch::update_details(int folder, const Named& entry, const std::string& below,
                                    const std::string& path) {
  auto details = details_of(0, path);
  if (!details && !client_->alive()) {
    if (auto again = reconnect(details.error()); !again) return again;
    details = details_of(0, path);
  }
  return details ? update_to(folder, entry, below, *details) : tl::unexpected(details.error());
}

// ... that the user names: what a link leads to, not the link.
Outcome<void> Fetch::update_single(int folder, const Named& entry, const std::string& path) {
  const auto opened = open_remote(path);
  if (!opened) return tl::unexpected(opened.error());
  const auto details = details_of(opened->handle, path);
  let_go(*opened);
  return details ? update_to(folder, entry, entry.name, *details) : tl::unexpected(details.error());
}

namespace {

// To flush a regular file: opening another would already do something, or wait. Its folder is
// flushed at the end.
os::Fd open_to_flush(int fd) {
  struct stat s {};
  if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) return {};
  return os::Fd(open(proc_name(fd).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

}  // namespace

Outcome<void> Fetch::update_to(int folder, const Named& entry, const std::string& below,
                               const Details& details) {
  const os::Fd here = find_in(folder, entry.name);
  bool differ = false;
  int error = here ? differs(here.get(), details, differ) : errno;
  if (error == 0 && differ && !options_.dry_run) {
    const bool flushes = options_.durable && S_ISREG(details.attributes.mode);
    // Before or afterwards it may be closed to its owner.
    os::Fd file = flushes ? open_to_flush(here.get()) : os::Fd();
    error = set_details(here.get(), details);
    if (flushes && !file) file = open_to_flush(here.get());
    if (error == 0 && flushes && (!file || fsync(file.get()) != 0)) error = errno;
  }
  if (error != 0) return failed(error, destination_->shown(below));
  tell(differ ? CopyStep::Kind::kChanged : CopyStep::Kind::kSame, below, entry.attributes);
  return {};
}

// Owner and time of a symbolic link, which has nothing else. Returns whether they differ.
Outcome<bool> Fetch::finish_link(int folder, const Named& entry) {
  const Attributes& a = entry.attributes;
  const os::Fd link = find_in(folder, entry.name);
  struct stat s {};
  if (!link || fstat(link.get(), &s) != 0) return failed(errno, entry.name);
  if (!S_ISLNK(s.st_mode)) return failed(ESTALE, entry.name, "somebody replaced the link");
  const bool other_owner = is_privileged() && (s.st_uid != a.uid || s.st_gid != a.gid);
  if (!other_owner && os::ns_of(s.st_mtim) == a.mtime_ns) return false;
  if (options_.dry_run) return true;
  const timespec times[2] = {{0, UTIME_OMIT}, os::timespec_of(a.mtime_ns)};
  const int error = set_details(link.get(), {a, {}});
  if (error != 0) return failed(error, entry.name);
  if (utimensat(link.get(), "", times, AT_EMPTY_PATH) != 0) return failed(errno, entry.name);
  return true;
}

// The first name that is met is copied; others become names of that copy at the end.
bool Fetch::is_further_name(const Named& entry, const std::string& below) {
  const Attributes& a = entry.attributes;
  if (a.links < 2 || S_ISDIR(a.mode) || S_ISSOCK(a.mode)) return false;
  kept_bytes_ += sizeof(FirstName) + below.size();
  const auto [at, is_first] = first_names_.try_emplace(a.file_id, FirstName{below, a});
  if (is_first) return false;
  if (!same_version(at->second.attributes, a)) {
    note_parted(below, at->second.below);
    return false;
  }
  further_names_.push_back({below, a.file_id});
  return true;
}

// The contents are right, or will be said not to be.
void Fetch::note_parted(const std::string& below, const std::string& first) {
  const Failed why{ESTALE, destination_->shown(below), parted_from(first)};
  if (!options_.allow_changing) return report(why);
  ++totals_.changed;
  if (watcher_.warned) watcher_.warned(why);
}

// Whether the file here is there for another one of the server: two that were one when they were
// copied, and are no longer. The second gets a file of its own.
bool Fetch::is_another(const struct stat& here, const Attributes& a) {
  if (!options_.archive || here.st_nlink < 2) return false;
  return claimed_.try_emplace({here.st_dev, here.st_ino}, a.file_id).first->second != a.file_id;
}

// FIFOs, and for root devices. Sockets are of no use without the program that made them.
Outcome<void> Fetch::take_special(int folder, const Named& entry, const std::string& below,
                                  const std::string& path) {
  const Attributes& a = entry.attributes;
  if (S_ISSOCK(a.mode)) {
    ++totals_.skipped;
    tell(CopyStep::Kind::kSkipped, below, a);
    return {};
  }
  const dev_t device = makedev(static_cast<unsigned>(a.device >> 32U),
                               static_cast<unsigned>(a.device & 0xffffffffU));
  struct stat s {};
  const bool there = fstatat(folder, entry.name.c_str(), &s, AT_SYMLINK_NOFOLLOW) == 0 &&
                     (s.st_mode & S_IFMT) == (a.mode & S_IFMT) &&
                     (S_ISFIFO(a.mode) || s.st_rdev == device);
  if (there) return update_details(folder, entry, below, path);
  tell(CopyStep::Kind::kSpecial, below, a);
  if (options_.dry_run) return {};
  const auto between = unique_part_name();
  if (!between) return tl::unexpected(between.error());
  if (mknodat(folder, between->c_str(), (a.mode & S_IFMT) | 0600U, device) != 0) {
    return failed(errno, destination_->shown(below) + ": special file");
  }
  const os::Fd made = find_in(folder, *between);
  const timespec times[2] = {{0, UTIME_OMIT}, os::timespec_of(a.mtime_ns)};
  int error = made ? set_details(made.get(), {a, {}}) : errno;
  const bool named = error == 0 &&
                     utimensat(folder, between->c_str(), times, AT_SYMLINK_NOFOLLOW) == 0 &&
                     renameat(folder, between->c_str(), folder, entry.name.c_str()) == 0;
  if (!named) {
    if (error == 0) error = errno;
    unlinkat(folder, between->c_str(), 0);
    return failed(error, destination_->shown(below) + ": special file");
  }
  return {};
}

Outcome<void> Fetch::make_names() {
  for (const FurtherName& one : further_names_) {
    const FirstName& first = first_names_.at(one.file_id);
    const auto made = make_name(first.below, one.below, first.attributes);
    if (!made) {
      report(made.error());
      continue;
    }
    ++totals_.files;
    tell(*made ? CopyStep::Kind::kName : CopyStep::Kind::kSame, one.below, first.attributes);
  }
  return {};
}

namespace {

struct Split {
  std::string folder, name;
};

Split split(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace

// Returns whether the name is new. Only of a file that is what the source has: copying it may have
// failed.
Outcome<bool> Fetch::make_name(const std::string& first, const std::string& name,
                               const Attributes& a) {
  const Split from = split(first);
  const Split to = split(name);
  const auto from_folder = destination_->folder(from.folder);
  if (!from_folder) return tl::unexpected(from_folder.error());
  const auto to_folder = destination_->folder(to.folder);
  if (!to_folder) return tl::unexpected(to_folder.error());
  struct stat old {};
  struct stat now {};
  const bool has =
      fstatat((*from_folder)->get(), from.name.c_str(), &old, AT_SYMLINK_NOFOLLOW) == 0;
  const bool is_there =
      fstatat((*to_folder)->get(), to.name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0;
  if (has && is_there && old.st_ino == now.st_ino && old.st_dev == now.st_dev) return false;
  if (options_.dry_run) return true;
  const bool same = has && (old.st_mode & S_IFMT) == (a.mode & S_IFMT) &&
                    (!S_ISREG(a.mode) || (static_cast<std::uint64_t>(old.st_size) == a.size &&
                                          os::ns_of(old.st_mtim) == a.mtime_ns));
  if (!same) {
    return failed(ECANCELED, destination_->shown(name),
                  "not linked to " + first + ", which was not copied");
  }
  const auto between = unique_part_name();
  if (!between) return tl::unexpected(between.error());
  const int folder = (*to_folder)->get();
  if (linkat((*from_folder)->get(), from.name.c_str(), folder, between->c_str(), 0) != 0) {
    return failed(errno, destination_->shown(name));
  }
  if (renameat(folder, between->c_str(), folder, to.name.c_str()) != 0) {
    const int error = errno;
    unlinkat(folder, between->c_str(), 0);
    return failed(error, destination_->shown(name));
  }
  return true;
}

// A folder of an earlier copy may be closed to its owner; finish_folder() closes it again.
void Fetch::open_to_owner(int folder) const {
  struct stat s {};
  if (options_.dry_run || fstat(folder, &s) != 0 || (s.st_mode & 0700U) == 0700U) return;
  static_cast<void>(fchmod(folder, (s.st_mode & kModeBits) | 0700U));
}

// The inner ones first: whatever is done in a folder changes its time, and an outer one may be
// closed to its owner afterwards.
Outcome<void> Fetch::finish_folders(const std::string& path) {
  for (auto one = walked_.rbegin(); one != walked_.rend(); ++one) {
    auto ok = finish_folder(path, *one);
    if (!ok && !client_->alive()) {
      if (ok = reconnect(ok.error()); ok) ok = finish_folder(path, *one);
      if (!ok && !client_->alive()) return ok;
    }
    if (!ok) report(ok.error());
  }
  walked_.clear();
  return {};
}

namespace {

// Whether a folder that had this mode and time differs in what is copied of it. An errno.
int folder_differs(int fd, std::uint32_t mode, std::int64_t mtime_ns, const Details& wanted,
                   bool& out) {
  // The mode may be another one while files are put into it.
  Details others = wanted;
  struct stat s {};
  if (fstat(fd, &s) != 0) return errno;
  others.attributes.mode = s.st_mode;
  const int error = differs(fd, others, out);
  const Attributes& a = wanted.attributes;
  out = out || ((mode ^ a.mode) & kModeBits) != 0 || mtime_ns != a.mtime_ns;
  return error;
}

// An errno.
int set_folder(int fd, const Details& details, bool durable) {
  const timespec times[2] = {{0, UTIME_OMIT}, os::timespec_of(details.attributes.mtime_ns)};
  if (const int error = set_details(fd, details); error != 0) return error;
  if (futimens(fd, times) != 0) return errno;
  return durable ? flush(fd) : 0;
}

}  // namespace

Outcome<void> Fetch::finish_folder(const std::string& path, const Walked& one) {
  if (options_.dry_run && one.made) return {};
  const auto folder = destination_->folder(one.below);
  if (!folder) return tl::unexpected(folder.error());
  // A slash behind it: the tree that the user names may be a link.
  const std::string remote = join(path, one.below);
  const auto details =
      details_of(0, remote.empty() || remote.ends_with('/') ? remote : remote + "/");
  if (!details) return tl::unexpected(details.error());
  if (!S_ISDIR(details->attributes.mode)) return failed(ENOTDIR, remote);
  // That in which a server shows several folders is none itself.
  if (details->attributes.file_id == 0) return {};
  const int fd = (*folder)->get();
  bool differ = false;
  int error = one.made ? 0 : folder_differs(fd, one.mode, one.mtime_ns, *details, differ);
  if (error == 0 && !options_.dry_run) error = set_folder(fd, *details, options_.durable);
  if (error != 0) return failed(error, destination_->shown(one.below));
  const auto kind = differ ? CopyStep::Kind::kChanged : CopyStep::Kind::kSame;
  if (!one.made) tell(kind, one.below, details->attributes);
  return {};
}

}  // namespace weft::files
