// A secret for tests: no digest that would hold anybody off, but another one for each text and key.
#pragma once

#include <cstring>

#include "base/bytes.h"
#include "roce/seal.h"

namespace weft::roce {

class ToySealer final : public Sealer {
 public:
  explicit ToySealer(std::uint64_t key) : key_(key) {}
  [[nodiscard]] Seal nonce() const override {
    Seal out{};
    store_be64(out.data(), ++nonces_);
    store_be64(&out[8], key_);
    return out;
  }
  // FNV-1a.
  [[nodiscard]] Seal tag(std::span<const std::uint8_t> text) const override {
    constexpr std::uint64_t kBasis = 0xcbf29ce484222325, kPrime = 0x100000001b3;
    std::uint64_t sum = kBasis ^ key_;
    for (const std::uint8_t octet : text) sum = (sum ^ octet) * kPrime;
    Seal out{};
    store_be64(out.data(), sum);
    return out;
  }

 private:
  const std::uint64_t key_;
  mutable std::uint64_t nonces_ = 0;
};

}  // namespace weft::roce
