// Profiles of `weft run --like`: what is read, what is refused, what users may write.
#include <gtest/gtest.h>

#include <cerrno>

#include "like/device_profile.h"
#include "like/known.h"

namespace weft::like {
namespace {

tl::expected<std::string, std::string> no_file(const std::string&) {
  return tl::unexpected(std::string("No such file or directory"));
}

TEST(LikeProfile, LinesAreReadAndSayNothingOfWhatTheyLeaveOut) {
  const auto profile = parse(
      "# siw\n  max_qp_wr = 32768\r\ndevice_cap_flags=0x20 # flags\n\n"
      "cq.resize = EOPNOTSUPP\nsrq.create = ok\natomic_cap = NONE\n");
  ASSERT_TRUE(profile) << profile.error();
  EXPECT_EQ(profile->number(Number::kMaxQpWr), 32768U);
  EXPECT_EQ(profile->number(Number::kDeviceCapFlags), 32U);
  EXPECT_EQ(profile->number(Number::kMaxQp), std::nullopt);
  EXPECT_EQ(profile->refusal(Act::kCqResize), EOPNOTSUPP);
  EXPECT_EQ(profile->refusal(Act::kSrqCreate), 0);
  EXPECT_EQ(profile->refusal(Act::kQpUd), 0);
  EXPECT_EQ(profile->atomics(), Atomics::kNone);
  EXPECT_EQ(parse("qp.RC = ENXIO")->refusal(Act::kQpRc), ENXIO) << "any errno";
}

TEST(LikeProfile, MistakesNameTheLineAndWhatIsLegal) {
  for (const auto& [text, words] :
       {std::pair("max_qp = many", "line 1: max_qp = many: write a number"),
        std::pair("\nmax_qp = -1", "line 2: max_qp = -1: write a number"),
        std::pair("max_qp = 18446744073709551616", "write a number"),
        std::pair("cq.resize = no", "write ok, or an errno"),
        std::pair("cq.cqe_granted = 7", "as_asked, power_of_two"),
        std::pair("atomic_cap = SOME", "NONE, HCA or GLOB"),
        std::pair("max_qps = 7", "there is no such key"), std::pair("siw", "write key = value")}) {
    const auto profile = parse(text);
    ASSERT_FALSE(profile) << text;
    EXPECT_NE(profile.error().find(words), std::string::npos) << text << ": " << profile.error();
  }
}

TEST(LikeProfile, SizesAreGrantedByItsRuleAndNeverBeyondWeft) {
  const auto profile = parse(
      "qp.send_wr_granted = as_asked\nqp.recv_wr_granted = power_of_two\n"
      "cq.cqe_granted = power_of_two_less_one\n");
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->granted(Size::kSendWr, 5, 8), 5U);
  EXPECT_EQ(profile->granted(Size::kRecvWr, 5, 8), 8U);
  EXPECT_EQ(profile->granted(Size::kRecvWr, 9, 12), 12U);
  EXPECT_EQ(profile->granted(Size::kCqe, 5, 16), 7U);
  EXPECT_EQ(profile->granted(Size::kCqe, 8, 16), 15U);
  EXPECT_EQ(profile->granted(Size::kCqe, 0xffffffff, 100), 100U);
  EXPECT_EQ(profile->granted(Size::kSrqWr, 5, 8), 8U) << "nothing is said of it";
}

TEST(LikeProfile, ItsTextIsReadAsTheSame) {
  for (const Known& known : known_devices()) {
    const auto profile = parse(known.text);
    ASSERT_TRUE(profile) << known.name << ": " << profile.error();
    const auto again = parse(text_of(*profile));
    ASSERT_TRUE(again) << known.name;
    EXPECT_EQ(again->lines(), profile->lines()) << known.name;
  }
}

TEST(LikeProfile, AWishIsADeviceAFileOrSettings) {
  const auto file = [](const std::string& path) -> tl::expected<std::string, std::string> {
    if (path == "my.profile") return std::string("max_qp = 9\n");
    return tl::unexpected(std::string("No such file or directory"));
  };
  EXPECT_EQ(profile_of("siw", no_file)->number(Number::kMaxSge), 6U);
  EXPECT_EQ(profile_of("my.profile", file)->number(Number::kMaxQp), 9U);
  const auto changed = profile_of("siw,max_sge=3,cq.resize=ok", no_file);
  ASSERT_TRUE(changed) << changed.error();
  EXPECT_EQ(changed->number(Number::kMaxSge), 3U);
  EXPECT_EQ(changed->refusal(Act::kCqResize), 0);
  EXPECT_EQ(changed->refusal(Act::kMrRereg), EOPNOTSUPP);
  EXPECT_EQ(profile_of("max_qp=4", no_file)->number(Number::kMaxQp), 4U);
}

TEST(LikeProfile, AWrongWishNamesTheWord) {
  for (const auto& [wish, words] :
       {std::pair("swi", "swi: No such file or directory, and it is no device that is known (siw"),
        std::pair("siw,rxe", "'rxe': write KEY=VALUE"), std::pair("siw,max_qp=x", "max_qp = x")}) {
    const auto profile = profile_of(wish, no_file);
    ASSERT_FALSE(profile) << wish;
    EXPECT_NE(profile.error().find(words), std::string::npos) << wish << ": " << profile.error();
  }
}

TEST(LikeProfile, EachKeyHasItsOwnName) {
  for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(Act::kCount); ++i) {
    Profile profile;
    const Act act{i};
    ASSERT_TRUE(profile.set(name_of(act), "EPERM")) << name_of(act);
    for (std::uint8_t j = 0; j < static_cast<std::uint8_t>(Act::kCount); ++j)
      EXPECT_EQ(profile.refusal(Act{j}), i == j ? EPERM : 0) << name_of(act);
  }
  for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(Number::kCount); ++i) {
    Profile profile;
    ASSERT_TRUE(profile.set(name_of(Number{i}), "7")) << name_of(Number{i});
    EXPECT_EQ(profile.number(Number{i}), 7U);
  }
}

}  // namespace
}  // namespace weft::like
