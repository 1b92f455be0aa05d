// Queue pairs wired by hand whose ends have to know a secret (Config::roce_secret).
#include "roce/qp_number.h"
#include "verbs/oob/hello_secret.h"
#include "verbs_wired.h"

namespace weft::verbs::test {
namespace {

constexpr const char* kSecret = "sixteen letters.";

Config with_secret(const char* secret) {
  Config config = roce_config();
  config.log = LogLevel::kError;  // refusals are what is tested
  config.roce_secret = secret;
  return config;
}

// RFC 4231 section 4.3.
TEST(RoceSecretDigest, IsHmacSha256) {
  const auto secret = HelloSecret::create("Jefe");
  ASSERT_TRUE(secret);
  const std::string_view text = "what do ya want for nothing?";
  const roce::Seal tag =
      (*secret)->tag({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  const roce::Seal known = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
                            0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
                            0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
  EXPECT_EQ(tag, known);
  EXPECT_NE((*secret)->nonce(), (*secret)->nonce());
}

TEST(WiringSecret, EndsThatShareItAreConnectedWhoeverGoesFirst) {
  const Wired a(QpType::kRc, with_secret(kSecret));
  const Wired b(QpType::kRc, with_secret(kSecret));
  a.to_rtr(b);
  b.to_rtr(a);
  a.to_rts();
  b.to_rts();
  expect_message(a, b, 1);
  expect_message(b, a, 2);
  EXPECT_EQ(a.host.device->counters().connections_refused, 0U);
  EXPECT_EQ(b.host.device->counters().connections_refused, 0U);
}

TEST(WiringSecret, EndsThatDoNotShareItAreNotConnectedAndThatIsCounted) {
  const std::pair<const char*, const char*> pairs[] = {
      {kSecret, "another secret!!"}, {kSecret, ""}, {"", kSecret}};
  for (const auto& [left, right] : pairs) {
    SCOPED_TRACE(std::string("'") + left + "' and '" + right + "'");
    const Wired a(QpType::kRc, with_secret(left));
    const Wired b(QpType::kRc, with_secret(right));
    a.to_rtr(b);
    b.to_rtr(a);
    a.to_rts(1);
    b.receive(1);
    a.send(2);
    EXPECT_EQ(describe(a.next().status), describe(WcStatus::kRetryExceeded));
    EXPECT_EQ(b.completions(), 0U);
    EXPECT_FALSE(b.linked());
    // By the numbers either may have called.
    EXPECT_NE(a.host.device->counters().connections_refused +
                  b.host.device->counters().connections_refused,
              0U);
  }
}

// From the right address, with the right numbers, and without the secret: it changes nothing.
TEST(WiringSecret, AStrangerWhoClaimsToBeThePeerDoesNotEvenKeepItBusy) {
  const Wired a(QpType::kRc, with_secret(kSecret));
  const Wired b(QpType::kRc, with_secret(kSecret));
  a.to_rtr(b);
  roce::Hello h;
  h.from = {b.host.device->peer_directory()->gid(), b.qp().number()};
  h.to = {h.from.gid, a.qp().number()};
  const auto knock = [&](bool sealed, std::size_t size) {
    h.sealed = sealed;
    Bytes octets(size);
    ByteWriter writer{std::span(octets)};
    encode(h, writer);
    RawSocket socket =
        RawSocket::connect(*address_of(h.to.gid, roce::split_number(a.qp().number()).port));
    socket.send(octets);
    return socket;
  };
  const RawSocket open = knock(false, roce::Hello::kSize);
  EXPECT_EQ(open.receive(roce::Hello::kSize)[10],
            static_cast<std::uint8_t>(roce::Verdict::kOtherSecret));
  EXPECT_TRUE(open.closed());
  EXPECT_EQ(a.host.device->counters().connections_refused, 1U);
  // One that stays behind the challenge, and one that guesses.
  const RawSocket silent = knock(true, roce::Hello::kSize + roce::kSealSize);
  const RawSocket guess = knock(true, roce::Hello::kSize + roce::kSealSize);
  EXPECT_EQ(guess.receive(roce::Hello::kSize + roce::kSealSize)[9],
            static_cast<std::uint8_t>(roce::HelloKind::kChallenge));
  Bytes proof(roce::Hello::kSize + roce::kSealSize, 1);
  h.kind = roce::HelloKind::kProof;
  ByteWriter writer{std::span(proof)};
  encode(h, writer);
  guess.send(proof);
  EXPECT_EQ(guess.receive(roce::Hello::kSize)[10],
            static_cast<std::uint8_t>(roce::Verdict::kOtherSecret));
  EXPECT_TRUE(eventually([&] { return a.host.device->counters().connections_refused >= 2; }));
  b.to_rtr(a);
  a.to_rts();
  expect_message(a, b, 5);
}

TEST(WiringSecret, OneThatIsTooShortIsRefusedWithTheDevice) {
  EXPECT_EQ(Device::open(with_secret("fifteen letters")).error(), Error::kInvalidArgument);
}

}  // namespace
}  // namespace weft::verbs::test
