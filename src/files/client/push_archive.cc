// Copies to a server with --archive: owners, extended attributes, further names, times of folders.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <thread>

#include "files/client/blocks.h"
#include "files/client/local.h"
#include "files/client/push.h"
#include "files/protocol/file_attributes.h"
#include "files/protocol/path_name.h"

namespace weft::files {
namespace {

constexpr std::uint32_t kXattrPageBytes = 64U << 10U;

}  // namespace

Outcome<Details> Push::details_here(int fd, const std::string& name) const {
  Details out;
  int error = 0;
  out.attributes = attributes_of(fd, &error);
  if (error == 0) error = get_xattrs(fd, kXattrPageBytes, out.xattrs, {true, options_.acls});
  if (error == E2BIG) return failed(E2BIG, name, "its extended attributes take more than 64 KiB");
  if (error != 0) return failed(error, name);
  out.tells_trusted = sees_trusted();
  out.has_acls = options_.acls;
  return out;
}

// `handle` 0: of what `to` names.
Outcome<Details> Push::details_there(std::uint64_t handle, const std::string& to) {
  // The memory is registered anew with each connection.
  const auto make = [&] {
    return XattrsRequest{
        handle,
        {address_of(link_.memory().data()), link_.memory().rkey(), kXattrPageBytes},
        handle == 0 ? named(to) : PathName(),
        options_.acls};
  };
  for (int tries = 0;; ++tries) {
    const auto reply = handle == 0 ? link_.ask_made(make) : link_.client().call(make(), to);
    if (!reply && reply.error().error == EAGAIN && tries < kSettleTries) {
      std::this_thread::sleep_for(kSettlePause);  // the server is short of memory just now
      continue;
    }
    if (!reply) return tl::unexpected(reply.error());
    if (reply->bytes > kXattrPageBytes) return failed(EPROTO, to);
    const std::vector<std::uint8_t> page(link_.memory().data(),
                                         link_.memory().data() + reply->bytes);
    auto xattrs = decode_xattrs(page);
    if (!xattrs) return failed(EPROTO, to, "the server's list of extended attributes is broken");
    return Details{reply->state.attributes, std::move(*xattrs), link_.client().tells_trusted(),
                   options_.acls};
  }
}

Privileges Push::may_set(const Details& wanted) const {
  const bool privileged = link_.client().takes_owners() && is_privileged();
  return {privileged, privileged && link_.client().tells_trusted() && wanted.tells_trusted,
          options_.acls};
}

// Owner first, which takes others away, then extended attributes. The mode comes later.
Outcome<void> Push::send_details(std::uint64_t handle, const std::string& to, const Details& wanted,
                                 const Details& now) {
  const auto send = [&](const auto& request) -> Outcome<void> {
    const auto reply = handle == 0 ? link_.ask(request) : link_.client().call(request, to);
    if (reply) return {};
    Failed why = reply.error();
    if (why.error == ENAMETOOLONG) {
      why = {E2BIG, to, "an extended attribute of it is too long for a message (some 4000 octets)"};
    }
    return tl::unexpected(why);
  };
  const PathName path = handle == 0 ? named(to) : PathName();
  const Attributes& a = wanted.attributes;
  const bool same_owner = now.attributes.uid == a.uid && now.attributes.gid == a.gid;
  Xattrs has = now.xattrs;
  if (link_.client().takes_owners() && !same_owner) {
    if (auto ok = send(OwnRequest{handle, a.uid, a.gid, path}); !ok) return ok;
    has.erase(std::string(kCapabilities));
  }
  const XattrChanges changes = changes_between(has, wanted.xattrs, may_set(wanted));
  for (const auto& [name, value] : changes.set) {
    if (auto ok = send(SetXattrRequest{handle, 0, name, value, path}); !ok) return ok;
  }
  for (const std::string& name : changes.remove) {
    if (auto ok = send(SetXattrRequest{handle, 1, name, {}, path}); !ok) return ok;
  }
  return {};
}

// For a draft, before it gets its name. One that an earlier attempt has left may have some.
Outcome<void> Push::carry_details(const DraftReply& made, const Details& wanted,
                                  const std::string& to) {
  const auto now = details_there(made.handle, to);
  return now ? send_details(made.handle, to, wanted, *now) : tl::unexpected(now.error());
}

// For a file that has the right contents. Returns whether it was changed, since it had the
// attributes `before` if they are given: this copy may have changed them itself.
Outcome<bool> Push::update_details(const Details& wanted, const std::string& to, bool with_time,
                                   const Attributes* before) {
  const auto now = details_there(0, to);
  if (!now) return tl::unexpected(now.error());
  const Attributes& a = wanted.attributes;
  const std::uint32_t bits = link_.client().takes_owners() ? kModeBits : 0777U;
  const auto owner_differs = [&](const Attributes& b) {
    return link_.client().takes_owners() && (a.uid != b.uid || a.gid != b.gid);
  };
  const auto what_differs = [&](const Attributes& b) {
    std::uint32_t what = 0;
    // A change of the owner takes bits of the mode away.
    const bool other_mode = ((a.mode ^ b.mode) & bits) != 0 || owner_differs(b);
    if (!S_ISLNK(a.mode) && other_mode) what |= kSetMode;
    if (with_time && a.mtime_ns != b.mtime_ns) what |= kSetTime;
    return what;
  };
  SetRequest set;
  set.path = named(to);
  set.what = what_differs(now->attributes);
  set.mode = a.mode & bits;
  set.mtime_ns = a.mtime_ns;
  const XattrChanges xattrs = changes_between(now->xattrs, wanted.xattrs, may_set(wanted));
  const bool other_xattrs = !xattrs.empty();
  const auto differs = [&](const Attributes& b) {
    return what_differs(b) != 0 || owner_differs(b) || other_xattrs;
  };
  const bool told = differs(before != nullptr ? *before : now->attributes);
  if (!differs(now->attributes) || options_.dry_run) return told;
  if ((set.what & kSetMode) != 0 && xattrs.has_acl()) {
    // The bits of its group are another thing with an ACL than without one: while one comes or
    // goes, it is for its owner alone.
    SetRequest closed = set;
    closed.what = kSetMode;
    closed.mode = (a.mode & 0700U) | 0600U;
    if (const auto reply = link_.ask(closed); !reply) return tl::unexpected(reply.error());
  }
  if (auto ok = send_details(0, to, wanted, *now); !ok) return tl::unexpected(ok.error());
  // ... and extended attributes of a file without write permission are set by its owner.
  if (options_.durable && !S_ISLNK(a.mode)) set.what |= kSetFlush;
  if (set.what == 0) return told;
  if (const auto reply = link_.ask(set); !reply) return tl::unexpected(reply.error());
  return told;
}

// A file with several names is copied by the first one that is met.
bool Push::is_further_name(int folder, const char* name, const std::string& to) {
  struct statx s {};
  if (look_at(folder, name, s) != 0) return false;  // what comes next says why
  const Attributes a = attributes_from(s);
  if (a.links < 2 || S_ISDIR(a.mode) || S_ISSOCK(a.mode)) return false;
  const auto [at, is_first] = first_names_.try_emplace(
      {makedev(s.stx_dev_major, s.stx_dev_minor), s.stx_ino}, FirstName{to, a});
  if (is_first) return false;
  if (!same_version(at->second.attributes, a)) {
    // Another file may have the number by now.
    if (at->second.attributes.file_id == a.file_id) note_parted(to, at->second.to);
    return false;
  }
  further_names_.push_back({to, at->second.to});
  return true;
}

// The contents are right, or will be said not to be.
void Push::note_parted(const std::string& to, const std::string& first) {
  const Failed why{ESTALE, to, parted_from(first)};
  if (!options_.allow_changing) return report(why);
  ++totals_.changed;
  if (watcher_.warned) watcher_.warned(why);
}

// Whether the server's file is there for another one of the source: two that were one when they
// were copied, and are no longer. The second gets a file of its own.
bool Push::is_another(const Attributes& there, const Version& version) {
  if (!options_.archive || there.links < 2) return false;
  const std::pair<dev_t, ino_t> ours{version.device, version.inode};
  return claimed_.try_emplace(there.file_id, ours).first->second != ours;
}

Outcome<void> Push::make_names() {
  for (const auto& [name, first] : further_names_) {
    const auto made = make_name(first, name);
    if (!made && !link_.alive()) return tl::unexpected(made.error());
    if (!made) {
      report(made.error());
      continue;
    }
    ++totals_.files;
    tell(*made ? CopyStep::Kind::kName : CopyStep::Kind::kSame, name);
  }
  return {};
}

namespace {

bool is_name_of(ServerLink& server, const PathName& name, std::uint64_t file_id) {
  const auto found = server.ask(StatRequest{name});
  return found && found->attributes.file_id == file_id;
}

}  // namespace

// Returns whether the name is new.
Outcome<bool> Push::make_name(const std::string& first, const std::string& name) {
  if (not_copied_.contains(first)) {
    return failed(ECANCELED, name, "not linked to " + first + ", which was not copied");
  }
  const auto old = link_.ask(StatRequest{named(first)});
  if (!old && !(options_.dry_run && old.error().error == ENOENT)) {
    return tl::unexpected(old.error());
  }
  const auto now = link_.ask(StatRequest{named(name)});
  if (!now && now.error().error != ENOENT) return tl::unexpected(now.error());
  if (old && now && old->attributes.file_id == now->attributes.file_id) return false;
  if (options_.dry_run || !old) return true;
  if (options_.durable) unflushed_.note_parent_of(name);
  if (!now) {
    const auto reply = link_.ask(LinkRequest{first, named(name)});
    if (reply) return true;
    if (reply.error().error != EEXIST) return tl::unexpected(reply.error());
    // Asked twice: the first reply was lost.
    if (is_name_of(link_, named(name), old->attributes.file_id)) return true;
  }
  return replace_by_name(first, old->attributes.file_id, name);
}

// In one step, by way of another name.
Outcome<bool> Push::replace_by_name(const std::string& first, std::uint64_t file_id,
                                    const std::string& name) {
  const auto unique = unique_part_name();
  if (!unique) return tl::unexpected(unique.error());
  const std::size_t slash = name.rfind('/');
  const std::string between = name.substr(0, slash == std::string::npos ? 0 : slash + 1) + *unique;
  const auto linked = link_.ask(LinkRequest{first, named(between)});
  if (!linked && linked.error().error != EEXIST) return tl::unexpected(linked.error());
  const auto moved = link_.ask(RenameRequest{0, between, named(name)});
  if (!link_.alive()) return tl::unexpected(moved.error());
  // Between two names of one file a rename does nothing.
  const auto removed = link_.ask(RemoveRequest{0, named(between)});
  // Asked twice, the first time with success.
  const bool done =
      moved || (moved.error().error == ENOENT && is_name_of(link_, named(name), file_id));
  if (!done) return tl::unexpected(moved.error());
  if (!removed && removed.error().error != ENOENT) return tl::unexpected(removed.error());
  return true;
}

// The inner ones first, as in Fetch::finish_folders().
Outcome<void> Push::finish_folders() {
  for (auto at = finished_.rbegin(); at != finished_.rend(); ++at) {
    const auto& [one, to] = *at;
    const auto done = finish_folder(one, to);
    if (!done && !link_.alive()) return done;
    if (!done) report(done.error());
  }
  finished_.clear();
  return {};
}

Outcome<void> Push::finish_folder(const Folder& one, const std::string& to) {
  if (options_.dry_run && !one.before) return {};
  const os::Fd folder(open_folder_below(source_.get(), one.below));
  if (!folder) return failed(errno, here(one.below));
  const auto details = details_here(folder.get(), here(one.below));
  if (!details) return tl::unexpected(details.error());
  // A slash behind it: the tree that the user names may be a link.
  const auto done = update_details(*details, to.empty() ? to : to + "/", true,
                                   one.before ? &*one.before : nullptr);
  if (!done) return tl::unexpected(done.error());
  if (one.before) {
    const auto kind = *done ? CopyStep::Kind::kChanged : CopyStep::Kind::kSame;
    tell(kind, to.empty() ? "." : to, 0, 0, true);
  }
  return {};
}

// Owner and time of a symbolic link, which has nothing else. Returns whether they differ.
Outcome<bool> Push::finish_link(int folder, const char* name, const std::string& to) {
  const os::Fd link(openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!link) return failed(errno, to);
  const auto details = details_here(link.get(), to);
  if (!details) return tl::unexpected(details.error());
  return update_details(*details, to, true);
}

}  // namespace weft::files
