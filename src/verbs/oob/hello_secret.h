// The secret of Config::roce_secret, by which hellos of wired queue pairs are proved: HMAC-SHA-256.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "roce/seal.h"

namespace weft::verbs {

// Immutable; any thread.
class HelloSecret final : public roce::Sealer {
 public:
  //   kNotFound   libcrypto cannot be loaded; the log says why
  [[nodiscard]] static Result<std::unique_ptr<HelloSecret>> create(std::string secret);

  [[nodiscard]] roce::Seal nonce() const override;
  [[nodiscard]] roce::Seal tag(std::span<const std::uint8_t> text) const override;

 private:
  // As <openssl/hmac.h> declares them.
  using Hmac = unsigned char* (*)(const void* digest, const void* key, int key_size,
                                  const unsigned char* data, std::size_t size, unsigned char* out,
                                  unsigned* out_size);
  using Sha256 = const void* (*)();

  HelloSecret(std::string secret, Hmac hmac, Sha256 sha256);

  const std::string secret_;
  const Hmac hmac_;
  const Sha256 sha256_;
};

}  // namespace weft::verbs
