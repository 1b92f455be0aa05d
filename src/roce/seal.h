// Proof of a secret that both ends share, as greeting.h needs it. Given by who has a digest and
// random numbers; this layer has neither.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::roce {

inline constexpr std::size_t kSealSize = 32;
using Seal = std::array<std::uint8_t, kSealSize>;

class Sealer {
 public:
  virtual ~Sealer() = default;
  // Octets that nobody can guess and that were never given before.
  [[nodiscard]] virtual Seal nonce() const = 0;
  // A digest of `text` that nobody can make without the secret.
  [[nodiscard]] virtual Seal tag(std::span<const std::uint8_t> text) const = 0;
};

}  // namespace weft::roce
