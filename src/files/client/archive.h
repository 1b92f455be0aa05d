// The attributes that --archive copies besides contents, permissions and times: owners (for root),
// extended attributes, set-user-ID and the like.
//
// Any thread.
#pragma once

#include <string>

#include "files/protocol/data_messages.h"
#include "files/protocol/file_xattrs.h"

namespace weft::files {

// A file's, as it is at the source.
struct Details {
  Attributes attributes{};
  Xattrs xattrs{};
  bool tells_trusted = false;  // all of its trusted.*: sees_trusted() there
  bool has_acls = false;       // they are among the attributes
};

inline constexpr std::uint32_t kModeBits = 07777;

// Whether two names of one file were looked at while nobody changed it.
[[nodiscard]] bool same_version(const Attributes& a, const Attributes& b);

// Why a name of a file with several became a file of its own.
[[nodiscard]] std::string parted_from(const std::string& first);

// Attributes that may be set, and removed, besides those of users.
struct Privileges {
  bool capabilities = false;
  bool trusted = false;  // both ends see them: one that is not there may only be hidden
  bool acls = false;     // they are to be copied
};

// Attributes to set, and names to remove, so that `now` becomes `wanted`.
struct XattrChanges {
  Xattrs set{};
  std::vector<std::string> remove{};
  [[nodiscard]] bool empty() const { return set.empty() && remove.empty(); }
  [[nodiscard]] bool has_acl() const;
};
[[nodiscard]] XattrChanges changes_between(const Xattrs& now, const Xattrs& wanted,
                                           const Privileges& may);

// Whether this process sets owners and privileged attributes, as rsync's does: it is root's.
[[nodiscard]] bool is_privileged();

// Whether an open file, or what a path descriptor names, differs in what set_details() sets.
// An errno.
[[nodiscard]] int differs(int fd, const Details& wanted, bool& out);
// Owner first, which takes others away, then extended attributes, then the mode. Not the time.
// An errno.
[[nodiscard]] int set_details(int fd, const Details& wanted);

}  // namespace weft::files
