// Hellos of wired queue pairs: the codec, and the exchange in both roles, with any octets in any
// pieces. Octet 0: bit 0 listener, bit 1 declines, bit 2 with a secret; octet 1: how many octets
// come at once.
#include "roce/hello.h"

#include <algorithm>

#include "../tests/unit/roce_sealer.h"
#include "roce/greeting.h"
#include "roce/qp_number.h"
#include "roce/rules.h"
#include "wire_fuzzing.h"

namespace weft::fuzzing {
namespace {

using roce::Greeting;
using roce::GreetingState;
using roce::Hello;

Hello mine() {
  Hello h;
  h.from = {{1}, roce::to_number({40000, 2})};
  h.to = {{2}, roce::to_number({50000, 3})};
  return h;
}

void check_asked(Greeting& g, bool decline) {
  const Hello peer = g.peer();
  roce::Standing standing{.wired = true, .mine = mine().from, .peer = mine().to};
  const auto verdict = roce::judge(peer, mine().to.gid, standing);
  check((verdict == roce::Verdict::kAccept) ==
        (peer.from == standing.peer && peer.to == standing.mine));
  g.answer(decline ? roce::Verdict::kBusy : verdict, mine());
  ByteReader in(g.to_send());
  const auto answer = roce::decode_hello(in);
  check(answer.has_value() && answer->from == peer.to && answer->to == peer.from);
  while (!g.to_send().empty()) g.sent(1);
  check(g.state() == GreetingState::kAccepted || g.state() == GreetingState::kDeclined);
}

void run(std::span<const std::uint8_t> input) {
  const bool listener = (input[0] & 1U) != 0;
  const std::size_t piece = input[1] == 0 ? Hello::kSize : input[1];
  round_trip(input.subspan(2), Hello::kSize, [](ByteReader& in) { return roce::decode_hello(in); });
  const roce::ToySealer secret(1);
  const roce::Sealer* const sealer = (input[0] & 4U) != 0 ? &secret : nullptr;
  Greeting g = listener ? Greeting::listener(sealer) : Greeting::connector(mine(), sealer);
  std::span<const std::uint8_t> rest = input.subspan(2);
  while (!rest.empty()) {
    g.sent(g.to_send().size());
    if (g.missing() == 0) break;
    const std::size_t n = std::min({piece, rest.size(), g.missing()});
    g.received(rest.first(n));
    rest = rest.subspan(n);
  }
  g.sent(g.to_send().size());
  // The digest is a toy, but nobody finds it by chance.
  check(sealer == nullptr ||
        (g.state() != GreetingState::kAsked && g.state() != GreetingState::kAccepted));
  if (g.state() == GreetingState::kAsked) check_asked(g, (input[0] & 2U) != 0);
  if (g.state() == GreetingState::kAccepted && !listener) check(g.peer().from == mine().to);
  g.peer_closed();
  check(!is_receiving(g.state()));
}

}  // namespace
}  // namespace weft::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size >= 2) weft::fuzzing::run({data, size});
  return 0;
}
