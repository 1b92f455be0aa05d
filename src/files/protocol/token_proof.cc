#include "files/protocol/token_proof.h"

#include <endian.h>
#include <fcntl.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "os/fd.h"

namespace weft::files {
namespace {

// With an ACL the bits of the group are its mask, and say nothing of the group: systemd gives its
// credentials to the user of a unit so. Root reads everything anyway.
bool is_for_others(int fd, mode_t mode) {
  if ((mode & S_IRWXO) != 0) return true;
  if ((mode & S_IRWXG) == 0) return false;
  std::array<posix_acl_xattr_entry, 64> entries{};
  std::array<std::uint8_t, sizeof(posix_acl_xattr_header) + sizeof entries> raw{};
  const ssize_t got = fgetxattr(fd, "system.posix_acl_access", raw.data(), raw.size());
  if (got < ssize_t{sizeof(posix_acl_xattr_header)}) return true;
  const std::size_t bytes = static_cast<std::size_t>(got) - sizeof(posix_acl_xattr_header);
  std::memcpy(entries.data(), raw.data() + sizeof(posix_acl_xattr_header), bytes);
  const auto end = entries.begin() + static_cast<std::ptrdiff_t>(bytes / sizeof entries.front());
  return std::any_of(entries.begin(), end, [](const posix_acl_xattr_entry& e) {
    const bool is_owner = le16toh(e.e_tag) == ACL_USER_OBJ || le16toh(e.e_tag) == ACL_MASK;
    const bool is_us = le16toh(e.e_tag) == ACL_USER && le32toh(e.e_id) == geteuid();
    return !is_owner && !is_us && le16toh(e.e_perm) != 0;
  });
}

}  // namespace

Outcome<std::string> read_token(const std::string& path) {
  const os::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return failed(errno, path);
  struct stat found {};
  char text[4096];
  const bool known = fstat(fd.get(), &found) == 0;
  const ssize_t got = read(fd.get(), text, sizeof text);
  if (!known || got < 0) return failed(errno, path);
  if (is_for_others(fd.get(), found.st_mode)) {
    return failed(EACCES, path, "other users can read this token; run chmod 600 on it");
  }
  std::string_view token(text, static_cast<std::size_t>(got));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.remove_suffix(1);
  if (token.size() < kTokenLeast) {
    return failed(EINVAL, path, "a token has at least 16 characters");
  }
  return std::string(token);
}

Nonce random_nonce() {
  Nonce nonce;
  // Up to 256 octets come whole or not at all; without random numbers there is no safe way on.
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) std::abort();
  return nonce;
}

Proof prove(std::string_view token, Side side, std::span<const std::uint8_t> client,
            std::span<const std::uint8_t> server) {
  const std::string_view label = side == Side::kClient ? "weft-data client" : "weft-data server";
  std::vector<std::uint8_t> message(label.begin(), label.end());
  message.insert(message.end(), client.begin(), client.end());
  message.insert(message.end(), server.begin(), server.end());
  Proof out{};
  unsigned length = 0;
  if (HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()), message.data(),
           message.size(), out.data(), &length) == nullptr ||
      length != out.size()) {
    std::abort();
  }
  return out;
}

bool same(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace weft::files
