#include "files/client/archive.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "files/protocol/file_attributes.h"
#include "files/protocol/open_beneath.h"

namespace weft::files {
namespace {

constexpr std::size_t kXattrBytesMax = std::size_t{1} << 20U;

}  // namespace

// The blocks may change by themselves, when the file system writes the file to its disk.
bool same_version(const Attributes& a, const Attributes& b) {
  return a.file_id == b.file_id && a.mode == b.mode && a.size == b.size &&
         a.mtime_ns == b.mtime_ns && a.ctime_ns == b.ctime_ns;
}

std::string parted_from(const std::string& first) {
  return "the file changed while the tree was read, and the copy is not linked to " + first +
         "; run this again";
}

XattrChanges changes_between(const Xattrs& now, const Xattrs& wanted, const Privileges& may) {
  const auto may_set = [&may](std::string_view name) {
    if (is_trusted(name)) return may.trusted;
    if (is_acl(name)) return may.acls;
    return is_for_users(name) || may.capabilities;
  };
  XattrChanges out;
  for (const auto& [name, value] : wanted) {
    const auto at = now.find(name);
    const bool same = at != now.end() && at->second == value;
    if (!same && may_set(name)) out.set.emplace(name, value);
  }
  for (const auto& [name, value] : now) {
    if (!wanted.contains(name) && may_set(name)) out.remove.push_back(name);
  }
  return out;
}

bool XattrChanges::has_acl() const {
  return std::ranges::any_of(set, [](const auto& one) { return is_acl(one.first); }) ||
         std::ranges::any_of(remove, [](const auto& name) { return is_acl(name); });
}

bool is_privileged() { return geteuid() == 0; }

namespace {

Privileges may_set(const Details& wanted) {
  const bool privileged = is_privileged();
  return {privileged, privileged && wanted.tells_trusted && sees_trusted(), wanted.has_acls};
}

}  // namespace

int differs(int fd, const Details& wanted, bool& out) {
  int error = 0;
  const Attributes now = attributes_of(fd, &error);
  Xattrs xattrs;
  if (error == 0) error = get_xattrs(fd, kXattrBytesMax, xattrs, {true, wanted.has_acls});
  if (error != 0) return error;
  const Attributes& a = wanted.attributes;
  const bool same_mode = S_ISLNK(a.mode) || ((now.mode ^ a.mode) & kModeBits) == 0;
  const bool same_owner = !is_privileged() || (now.uid == a.uid && now.gid == a.gid);
  const bool same_xattrs = changes_between(xattrs, wanted.xattrs, may_set(wanted)).empty();
  out = !same_mode || !same_owner || !same_xattrs;
  return 0;
}

int set_details(int fd, const Details& wanted) {
  const Attributes& a = wanted.attributes;
  if (is_privileged() && fchownat(fd, "", a.uid, a.gid, AT_EMPTY_PATH) != 0) return errno;
  if (S_ISLNK(a.mode)) return 0;
  Xattrs now;
  if (const int error = get_xattrs(fd, kXattrBytesMax, now, {true, wanted.has_acls}); error != 0)
    return error;
  const XattrChanges changes = changes_between(now, wanted.xattrs, may_set(wanted));
  // Attributes of users are for those who may write. The bits of a group are another thing with an
  // ACL than without one: while one comes or goes, the file is for its owner alone.
  const mode_t others = changes.has_acl() ? 0U : a.mode & 0077U;
  const mode_t between = (a.mode & 0700U) | 0600U | others;
  if (!changes.empty() && chmod(proc_name(fd).c_str(), between) != 0) return errno;
  for (const auto& [name, value] : changes.set) {
    const std::span<const std::uint8_t> octets(value);
    if (const int error = set_xattr(fd, name, &octets); error != 0) return error;
  }
  for (const std::string& name : changes.remove) {
    if (const int error = set_xattr(fd, name, nullptr); error != 0) return error;
  }
  // A path descriptor stands for a name only.
  return chmod(proc_name(fd).c_str(), a.mode & kModeBits) == 0 ? 0 : errno;
}

}  // namespace weft::files
