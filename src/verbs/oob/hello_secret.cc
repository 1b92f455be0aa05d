#include "verbs/oob/hello_secret.h"

#include <dlfcn.h>

#include "base/bytes.h"
#include "os/log.h"
#include "verbs/random.h"

namespace weft::verbs {

namespace {

// Loaded when a secret is set, and not linked: Weft's libraries are put into programs that bring a
// libcrypto of their own, which ours must not come before.
constexpr const char* kLibrary = "libcrypto.so.3";

}  // namespace

Result<std::unique_ptr<HelloSecret>> HelloSecret::create(std::string secret) {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  const auto find = [&](const char* name) {
    return library == nullptr ? nullptr : ::dlsym(library, name);
  };
  const auto hmac = reinterpret_cast<Hmac>(find("HMAC"));
  const auto sha256 = reinterpret_cast<Sha256>(find("EVP_sha256"));
  if (hmac == nullptr || sha256 == nullptr) {
    const char* const why = ::dlerror();
    os::log(LogLevel::kError, "roce_secret needs {} (package libssl3), which cannot be loaded: {}",
            kLibrary, why != nullptr ? why : "it is another library of this name");
    return fail(Error::kNotFound);
  }
  return std::unique_ptr<HelloSecret>(new HelloSecret(std::move(secret), hmac, sha256));
}

HelloSecret::HelloSecret(std::string secret, Hmac hmac, Sha256 sha256)
    : secret_(std::move(secret)), hmac_(hmac), sha256_(sha256) {}

roce::Seal HelloSecret::nonce() const {
  roce::Seal out;
  for (std::size_t at = 0; at < out.size(); at += sizeof(std::uint32_t)) {
    store_be32(&out[at], random_u32());
  }
  return out;
}

roce::Seal HelloSecret::tag(std::span<const std::uint8_t> text) const {
  roce::Seal out{};
  unsigned size = 0;
  // Without memory for a digest: random octets, with which nobody lets anybody in.
  if (hmac_(sha256_(), secret_.data(), static_cast<int>(secret_.size()), text.data(), text.size(),
            out.data(), &size) == nullptr ||
      size != out.size()) {
    return nonce();
  }
  return out;
}

}  // namespace weft::verbs
