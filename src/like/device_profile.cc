#include "like/device_profile.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <utility>

#include "os/errno_name.h"

namespace weft::like {

namespace {

template <class T>
struct Named {
  std::string_view name;
  T value;
};

constexpr auto kNumberCount = static_cast<std::size_t>(Number::kCount);
constexpr auto kActCount = static_cast<std::size_t>(Act::kCount);
constexpr auto kSizeCount = static_cast<std::size_t>(Size::kCount);

constexpr std::array<std::string_view, kNumberCount> kNumbers = {"max_mr_size",
                                                                 "max_qp",
                                                                 "max_qp_wr",
                                                                 "device_cap_flags",
                                                                 "max_sge",
                                                                 "max_sge_rd",
                                                                 "max_cq",
                                                                 "max_cqe",
                                                                 "max_mr",
                                                                 "max_mw",
                                                                 "max_pd",
                                                                 "max_qp_rd_atom",
                                                                 "max_qp_init_rd_atom",
                                                                 "max_res_rd_atom",
                                                                 "max_ah",
                                                                 "max_srq",
                                                                 "max_srq_wr",
                                                                 "max_srq_sge",
                                                                 "port.max_mtu",
                                                                 "port.active_mtu",
                                                                 "port.gid_tbl_len",
                                                                 "port.max_msg_sz",
                                                                 "qp.max_inline",
                                                                 "qp.inline_of_none"};

constexpr std::array<std::string_view, kActCount> kActs = {"qp.RC",
                                                           "qp.UC",
                                                           "qp.UD",
                                                           "qp.builder",
                                                           "qp.inline_beyond",
                                                           "qp.send_wr_beyond",
                                                           "qp.recv_wr_beyond",
                                                           "qp.send_sge_beyond",
                                                           "qp.recv_sge_beyond",
                                                           "cq.cqe_beyond",
                                                           "cq.resize",
                                                           "cq.extended",
                                                           "srq.create",
                                                           "srq.wr_beyond",
                                                           "srq.sge_beyond",
                                                           "srq.resize",
                                                           "srq.limit",
                                                           "mr.LOCAL_WRITE",
                                                           "mr.REMOTE_WRITE",
                                                           "mr.REMOTE_READ",
                                                           "mr.REMOTE_ATOMIC",
                                                           "mr.MW_BIND",
                                                           "mr.ZERO_BASED",
                                                           "mr.ON_DEMAND",
                                                           "mr.RELAXED_ORDERING",
                                                           "mr.no_octets",
                                                           "mr.rereg",
                                                           "mw.TYPE_1",
                                                           "mw.TYPE_2",
                                                           "dm.alloc",
                                                           "post.SEND",
                                                           "post.SEND_WITH_IMM",
                                                           "post.SEND_WITH_IMM_only",
                                                           "post.SEND_WITH_INV",
                                                           "post.RDMA_WRITE",
                                                           "post.RDMA_WRITE_WITH_IMM",
                                                           "post.RDMA_READ",
                                                           "post.ATOMIC_CMP_AND_SWP",
                                                           "post.ATOMIC_FETCH_AND_ADD",
                                                           "post.LOCAL_INV",
                                                           "post.BIND_MW",
                                                           "post.read_sge_beyond"};

constexpr std::array<std::string_view, kSizeCount> kSizes = {
    "qp.send_wr_granted", "qp.recv_wr_granted", "cq.cqe_granted", "srq.wr_granted"};

constexpr auto kRoundings =
    std::to_array<Named<Rounding>>({{"as_asked", Rounding::kAsAsked},
                                    {"power_of_two", Rounding::kPowerOfTwo},
                                    {"power_of_two_less_one", Rounding::kPowerOfTwoLessOne}});

constexpr auto kAtomics = std::to_array<Named<Atomics>>(
    {{"NONE", Atomics::kNone}, {"HCA", Atomics::kHca}, {"GLOB", Atomics::kGlob}});

// Where a profile comes from. They are kept, and have no effect.
constexpr std::array<std::string_view, 7> kOrigins = {"device", "kernel", "firmware", "vendor",
                                                      "driver", "source", "date"};

template <std::size_t N>
std::optional<std::size_t> index_of(const std::array<std::string_view, N>& names,
                                    std::string_view name) {
  const auto* const found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

template <class T, std::size_t N>
std::optional<T> value_of(const std::array<Named<T>, N>& names, std::string_view name) {
  const auto* const found =
      std::ranges::find_if(names, [&](const Named<T>& one) { return one.name == name; });
  if (found == names.end()) return std::nullopt;
  return found->value;
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  const bool hexadecimal = text.starts_with("0x");
  if (hexadecimal) text.remove_prefix(2);
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, hexadecimal ? 16 : 10);
  if (error != std::errc{} || at != end) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::uint32_t power_of_two(std::uint64_t least) {
  std::uint64_t out = 1;
  while (out < least) out *= 2;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(out, std::uint64_t{1} << 31U));
}

tl::unexpected<std::string> wrong(std::string_view key, std::string_view value,
                                  std::string_view legal) {
  return tl::unexpected(std::string(key) + " = " + std::string(value) + ": " + std::string(legal));
}

}  // namespace

std::string_view name_of(Act what) {
  assert(what < Act::kCount);
  return kActs[static_cast<std::size_t>(what)];
}

std::string_view name_of(Number which) {
  assert(which < Number::kCount);
  return kNumbers[static_cast<std::size_t>(which)];
}

std::uint32_t Profile::granted(Size size, std::uint32_t asked, std::uint32_t own) const {
  switch (roundings_[static_cast<std::size_t>(size)]) {
    case Rounding::kAsAsked: return std::min(asked, own);
    case Rounding::kPowerOfTwo: return std::min(power_of_two(asked), own);
    case Rounding::kPowerOfTwoLessOne:
      return std::min(power_of_two(std::uint64_t{asked} + 1) - 1, own);
    default: return own;
  }
}

tl::expected<void, std::string> Profile::set(std::string_view key, std::string_view value) {
  if (const auto number = index_of(kNumbers, key)) {
    const auto amount = number_of(value);
    if (!amount) return wrong(key, value, "write a number, as 64 or 0x40");
    numbers_[*number] = amount;
  } else if (const auto act = index_of(kActs, key)) {
    const auto error = value == "ok" ? 0 : os::errno_by_name(value);
    if (!error) return wrong(key, value, "write ok, or an errno such as EINVAL or EOPNOTSUPP");
    refusals_[*act] = *error;
  } else if (const auto size = index_of(kSizes, key)) {
    const auto rounding = value_of(kRoundings, value);
    if (!rounding) return wrong(key, value, "as_asked, power_of_two or power_of_two_less_one");
    roundings_[*size] = *rounding;
  } else if (key == "atomic_cap") {
    atomics_ = value_of(kAtomics, value);
    if (!atomics_) return wrong(key, value, "write NONE, HCA or GLOB");
  } else if (!index_of(kOrigins, key)) {
    return wrong(key, value, "there is no such key; `weft probe` prints them all");
  }
  lines_[std::string(key)] = std::string(value);
  return {};
}

tl::expected<Profile, std::string> parse(std::string_view text) {
  Profile out;
  if (text.find('\0') != std::string_view::npos)
    return tl::unexpected(std::string("an octet of 0; this is no file of text"));
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, std::min(text.find('#'), end)));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const std::size_t equals = line.find('=');
    const auto at = [&](const std::string& why) {
      return tl::unexpected("line " + std::to_string(number) + ": " + why);
    };
    if (equals == std::string_view::npos)
      return at("'" + std::string(line) + "': write key = value");
    const auto done = out.set(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)));
    if (!done) return at(done.error());
  }
  return out;
}

std::string text_of(const Profile& profile) {
  std::string out;
  for (const auto& [key, value] : profile.lines()) out += key + " = " + value + "\n";
  return out;
}

}  // namespace weft::like
