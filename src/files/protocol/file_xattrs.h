// Extended attributes of files on the disk. Those that belong to the file system's own business
// (ACLs, labels of security modules) are left out: `user.`, `trusted.` and file capabilities are
// copied.
//
// Any thread. All calls may wait for the disk.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/protocol/data_messages.h"

namespace weft::files {

using Xattrs = std::map<std::string, std::vector<std::uint8_t>, std::less<>>;

// The system takes it from a file that changes its owner, or is written.
inline constexpr std::string_view kCapabilities = "security.capability";

// Whether copies carry an attribute of this name, ACLs apart.
[[nodiscard]] bool is_carried(std::string_view name);
// Whether everybody who may write the file may set it.
[[nodiscard]] inline bool is_for_users(std::string_view name) { return name.starts_with("user."); }

// For the superuser's programs.
[[nodiscard]] inline bool is_trusted(std::string_view name) { return name.starts_with("trusted."); }
// Whether the system shows those to this process: to others a file seems to have none.
[[nodiscard]] bool sees_trusted();

// They say who may do what besides owner and group, and for folders what new files in them get.
[[nodiscard]] inline bool is_acl(std::string_view name) {
  return name == "system.posix_acl_access" || name == "system.posix_acl_default";
}

// Those to be looked at besides the others that are carried.
struct XattrKinds {
  bool trusted = true;
  bool acls = false;
};
// `fd`: an open file or folder, or a path descriptor, of which links have none. An errno.
//   E2BIG   they take more than `most` octets as entries
[[nodiscard]] int get_xattrs(int fd, std::size_t most, Xattrs& out, XattrKinds kinds = {});
// An errno. Without a value the attribute goes; it may be gone already.
[[nodiscard]] int set_xattr(int fd, const std::string& name,
                            const std::span<const std::uint8_t>* value);
// As entries of XATTRS.   0: no room
[[nodiscard]] std::size_t encode(const Xattrs& all, std::span<std::uint8_t> out);
// Nothing: the entries are broken.
[[nodiscard]] std::optional<Xattrs> decode_xattrs(std::span<const std::uint8_t> in);

}  // namespace weft::files
