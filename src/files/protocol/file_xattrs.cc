#include "files/protocol/file_xattrs.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "files/protocol/open_beneath.h"

namespace weft::files {
namespace {

// Linux has no more for one file.
constexpr std::size_t kListBytes = 64U << 10U;

// Calls on a path descriptor are EBADF: its name in /proc stands for the file.
bool is_link(int fd) {
  struct stat s {};
  return fstat(fd, &s) == 0 && S_ISLNK(s.st_mode);
}

int get_value(const std::string& file, const char* name, std::vector<std::uint8_t>& out) {
  out.resize(kListBytes);  // ... nor a longer value
  const ssize_t size = getxattr(file.c_str(), name, out.data(), out.size());
  if (size < 0) return errno;
  out.resize(static_cast<std::size_t>(size));
  return 0;
}

}  // namespace

bool is_carried(std::string_view name) {
  return is_for_users(name) || is_trusted(name) || name == kCapabilities;
}

namespace {

// In the first namespace of users alone: the root of another has the capability there, and sees
// nothing.
bool looks_privileged() {
  constexpr ino_t kFirstNamespace = 0xeffffffd;
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
  if (syscall(SYS_capget, &head, sets) != 0) return false;
  if ((sets[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) == 0) return false;
  struct stat s {};
  return stat("/proc/self/ns/user", &s) == 0 && s.st_ino == kFirstNamespace;
}

}  // namespace

bool sees_trusted() {
  static const bool sees = looks_privileged();
  return sees;
}

int get_xattrs(int fd, std::size_t most, Xattrs& out, XattrKinds kinds) {
  out.clear();
  if (is_link(fd)) return 0;
  const std::string file = proc_name(fd);
  std::vector<char> names(kListBytes);
  const ssize_t size = listxattr(file.c_str(), names.data(), names.size());
  if (size < 0) return errno == EOPNOTSUPP ? 0 : errno;
  std::size_t bytes = 0;
  const std::string_view all(names.data(), static_cast<std::size_t>(size));
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\0', at), all.size());
    const std::string name(all.substr(at, end - at));
    at = end + 1;
    const bool taken =
        is_acl(name) ? kinds.acls : is_carried(name) && (kinds.trusted || !is_trusted(name));
    if (!taken) continue;
    std::vector<std::uint8_t> value;
    const int error = get_value(file, name.c_str(), value);
    if (error == ENODATA) continue;  // gone meanwhile
    if (error != 0) return error;
    bytes += kXattrHeadBytes + name.size() + value.size();
    if (bytes > most) return E2BIG;
    out.emplace(name, std::move(value));
  }
  return 0;
}

int set_xattr(int fd, const std::string& name, const std::span<const std::uint8_t>* value) {
  const std::string file = proc_name(fd);
  if (value == nullptr) {
    return removexattr(file.c_str(), name.c_str()) == 0 || errno == ENODATA ? 0 : errno;
  }
  return setxattr(file.c_str(), name.c_str(), value->data(), value->size(), 0) == 0 ? 0 : errno;
}

std::size_t encode(const Xattrs& all, std::span<std::uint8_t> out) {
  std::size_t at = 0;
  for (const auto& [name, value] : all) {
    const std::size_t took = encode(Xattr{name, value}, out.subspan(at));
    if (took == 0) return 0;
    at += took;
  }
  return at;
}

std::optional<Xattrs> decode_xattrs(std::span<const std::uint8_t> in) {
  Xattrs out;
  while (const auto one = decode_xattr(in)) {
    out.emplace(one->name, std::vector<std::uint8_t>(one->value.begin(), one->value.end()));
  }
  return in.empty() ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace weft::files
