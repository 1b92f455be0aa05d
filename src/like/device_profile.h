// The promises and refusals of a device, for `weft run --like`: lines of `key = value`, as
// `weft probe` writes them. Pure: whoever reads the file or asks the device is elsewhere.
//
// A value of 'ok' says that something works there, an errno such as EINVAL that it is refused so.
// What a profile does not say stays as Weft has it. A device can be imitated in what Weft can do
// itself, so a larger limit than Weft's, or an 'ok' where Weft refuses, changes nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace weft::like {

// Limits. Those of struct ibv_device_attr have its names.
enum class Number : std::uint8_t {
  kMaxMrSize,
  kMaxQp,
  kMaxQpWr,
  kDeviceCapFlags,  // a set: what Weft has beyond it is taken away
  kMaxSge,
  kMaxSgeRd,
  kMaxCq,
  kMaxCqe,
  kMaxMr,
  kMaxMw,
  kMaxPd,
  kMaxQpRdAtom,
  kMaxQpInitRdAtom,
  kMaxResRdAtom,
  kMaxAh,
  kMaxSrq,
  kMaxSrqWr,
  kMaxSrqSge,
  kPortMaxMtu,     // octets
  kPortActiveMtu,  // octets
  kPortGidTblLen,
  kPortMaxMsgSz,  // octets
  kMaxInline,     // octets
  kInlineOfNone,  // granted to a queue pair that asked for none
  kCount,
};

// Calls and wishes that may be refused. "Beyond": one more than the limit of that name.
enum class Act : std::uint8_t {
  kQpRc,
  kQpUc,
  kQpUd,
  kQpBuilder,  // ibv_create_qp_ex with send_ops_flags
  kQpInlineBeyond,
  kQpSendWrBeyond,
  kQpRecvWrBeyond,
  kQpSendSgeBeyond,
  kQpRecvSgeBeyond,
  kCqCqeBeyond,
  kCqResize,
  kCqExtended,  // ibv_create_cq_ex
  kSrqCreate,
  kSrqWrBeyond,
  kSrqSgeBeyond,
  kSrqResize,
  kSrqLimit,
  kMrLocalWrite,
  kMrRemoteWrite,
  kMrRemoteRead,
  kMrRemoteAtomic,
  kMrMwBind,
  kMrZeroBased,
  kMrOnDemand,
  kMrRelaxedOrdering,
  kMrNoOctets,
  kMrRereg,
  kMwType1,
  kMwType2,
  kDmAlloc,
  kPostSend,
  kPostSendWithImm,
  kPostSendWithImmOnly,  // without octets
  kPostSendWithInv,
  kPostRdmaWrite,
  kPostRdmaWriteWithImm,
  kPostRdmaRead,
  kPostAtomicCmpAndSwp,
  kPostAtomicFetchAndAdd,
  kPostLocalInv,
  kPostBindMw,
  kPostReadSgeBeyond,
  kCount,
};

// Sizes that a device may grant in another measure than they were asked for.
enum class Size : std::uint8_t { kSendWr, kRecvWr, kCqe, kSrqWr, kCount };
enum class Rounding : std::uint8_t { kWeft, kAsAsked, kPowerOfTwo, kPowerOfTwoLessOne };

enum class Atomics : std::uint8_t { kNone, kHca, kGlob };

class Profile {
 public:
  [[nodiscard]] std::optional<std::uint64_t> number(Number which) const {
    return numbers_[static_cast<std::size_t>(which)];
  }
  // The errno; 0: it works, or nothing is said of it.
  [[nodiscard]] int refusal(Act what) const { return refusals_[static_cast<std::size_t>(what)]; }
  // The size that is granted to a program that asked for so many, where Weft grants `own`.
  [[nodiscard]] std::uint32_t granted(Size size, std::uint32_t asked, std::uint32_t own) const;
  [[nodiscard]] std::optional<Atomics> atomics() const { return atomics_; }

  // Sets one key, or says what is wrong. A later value takes the place of an earlier one.
  [[nodiscard]] tl::expected<void, std::string> set(std::string_view key, std::string_view value);
  // The lines that parse() takes.
  [[nodiscard]] const std::map<std::string, std::string, std::less<>>& lines() const {
    return lines_;
  }

 private:
  std::array<std::optional<std::uint64_t>, static_cast<std::size_t>(Number::kCount)> numbers_{};
  std::array<int, static_cast<std::size_t>(Act::kCount)> refusals_{};
  std::array<Rounding, static_cast<std::size_t>(Size::kCount)> roundings_{};
  std::optional<Atomics> atomics_;
  std::map<std::string, std::string, std::less<>> lines_;
};

// Lines of `key = value`; '#' begins a comment. Error: the number of the line, its words, and what
// is legal there.
[[nodiscard]] tl::expected<Profile, std::string> parse(std::string_view text);
[[nodiscard]] std::string text_of(const Profile& profile);

// Names the key of a refusal, such as post.SEND_WITH_IMM.
[[nodiscard]] std::string_view name_of(Act what);
// Names a limit, such as max_qp_wr.
[[nodiscard]] std::string_view name_of(Number which);

}  // namespace weft::like
