// Proof of a shared token without sending it: HMAC-SHA-256 over both sides' nonces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "files/protocol/data_protocol.h"
#include "files/protocol/outcome.h"

namespace weft::files {

enum class Side : std::uint8_t { kClient, kServer };

inline constexpr std::size_t kTokenLeast = 16;  // octets

// The contents of `path` without the newline at the end.
//   EINVAL   shorter than 16 octets: too easy to guess
//   EACCES   other users can read the file, by its permissions or an ACL
[[nodiscard]] Outcome<std::string> read_token(const std::string& path);

[[nodiscard]] Nonce random_nonce();
// `side` sends this to show that it knows `token`. The proofs of the two sides differ, so neither
// can be sent back as the other's.
[[nodiscard]] Proof prove(std::string_view token, Side side, std::span<const std::uint8_t> client,
                          std::span<const std::uint8_t> server);
// In a time that does not depend on where they differ.
[[nodiscard]] bool same(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

}  // namespace weft::files
