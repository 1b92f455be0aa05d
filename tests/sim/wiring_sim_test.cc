// Two ends that both try to connect, over a network that delays, cuts, resets and refuses, with
// strangers between: whatever happens, in the end both are on one connection, the same one.
//
// The decisions are those of roce/rules.h, the octets those of roce/greeting.h. What stands between
// them here, an end, does with sockets of a simulated network what verbs/oob/wiring.cc does with
// those of the kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "../unit/roce_sealer.h"
#include "roce/greeting.h"
#include "roce/qp_number.h"
#include "roce/rules.h"
#include "seeds.h"

namespace weft::roce {
namespace {

using testing::for_each_seed;
using testing::Rng;

constexpr Duration kHostileFor{5'000'000'000};
constexpr Duration kPeaceFor{30'000'000'000};

struct Network {
  explicit Network(std::uint64_t seed) : rng(seed) {}
  void after(Duration pause, std::function<void()> what) {
    events.emplace(now + pause, std::move(what));
  }
  Duration up_to(Duration longest) {
    return Duration{
        static_cast<std::int64_t>(rng.between(1, static_cast<std::uint64_t>(longest.count())))};
  }
  Duration delay() { return up_to(longest_delay); }
  [[nodiscard]] bool hostile() const { return now < Instant{} + kHostileFor; }
  void run_until(Instant end) {
    while (!events.empty() && events.begin()->first <= end) {
      const auto next = events.extract(events.begin());
      now = next.key();
      next.mapped()();
    }
    now = end;
  }

  Duration longest_delay{300'000'000};  // of a handshake or of a piece of octets
  Rng rng;
  Instant now{};
  std::multimap<Instant, std::function<void()>> events;
};

struct Peer;

// A TCP connection, seen from both sides.
struct Link {
  Greeting connector, listener = Greeting::listener();
  Peer* from = nullptr;  // null: a stranger
  Peer* to = nullptr;
  Gid source{};
  bool dead = false;
};
using LinkPtr = std::shared_ptr<Link>;

struct Peer {
  Peer(Network& n, const End& m, const End& p) : net(n), mine(m), peer(p) {}

  void begin(bool blocked) {
    cannot_connect = blocked;
    seek(goes_first(mine, peer) ? Duration{0} : kTurnOfOther);
  }
  void seek(Duration pause) {
    linked = nullptr;
    drop_attempt();
    wired = true;
    attempts = 0;
    try_again(pause);
  }
  void try_again(Duration pause) {
    const std::uint32_t id = ++timer;
    net.after(pause, [this, id] {
      if (id == timer && linked == nullptr) attempt();
    });
  }
  void attempt();
  void attempt_failed() {
    drop_attempt();
    try_again(pause_before(attempts++));
  }
  void drop_attempt();
  void deliver(const LinkPtr& link, bool to_listener);
  void asked(const LinkPtr& link);
  void link_up(const LinkPtr& link) {
    linked = link;
    attempting = nullptr;
    said_hello = false;
    ++timer;
  }
  // Its own side of `link` hears that the link has ended.
  void lost(const LinkPtr& link) {
    if (linked == link) return seek(Duration{0});
    if (attempting == link) attempt_failed();
  }
  [[nodiscard]] Hello hello() const {
    Hello h;
    h.from = mine;
    h.to = peer;
    return h;
  }

  Network& net;
  Peer* other = nullptr;
  const End mine, peer;
  const Sealer* secret = nullptr;
  bool wired = false, said_hello = false, cannot_connect = false;
  LinkPtr linked, attempting;
  std::uint32_t attempts = 0, timer = 0;
};

void end_link(Network& net, const LinkPtr& link) {
  if (std::exchange(link->dead, true)) return;
  for (Peer* side : {link->from, link->to}) {
    if (side != nullptr) net.after(net.delay(), [side, link] { side->lost(link); });
  }
}

void Peer::drop_attempt() {
  said_hello = false;
  if (attempting != nullptr) end_link(net, std::exchange(attempting, nullptr));
}

// One piece of the hello or the answer; the next one follows by itself.
void Peer::deliver(const LinkPtr& link, bool to_listener) {
  Greeting& sender = to_listener ? link->connector : link->listener;
  Greeting& receiver = to_listener ? link->listener : link->connector;
  if (link->dead || sender.to_send().empty()) return;
  if (net.hostile() && net.rng.one_in(8)) return end_link(net, link);
  const std::size_t n = net.rng.size(1, std::min(sender.to_send().size(), receiver.missing()));
  const std::vector<std::uint8_t> piece(sender.to_send().begin(),
                                        sender.to_send().begin() + static_cast<std::ptrdiff_t>(n));
  sender.sent(n);
  receiver.received(piece);
  if (!sender.to_send().empty()) {
    net.after(net.delay(), [=, this] { deliver(link, to_listener); });
  } else if (is_sending(receiver.state())) {  // a challenge, a proof, or no
    net.after(net.delay(), [=, this] { deliver(link, !to_listener); });
  } else if (to_listener) {
    if (receiver.state() != GreetingState::kAsked) return end_link(net, link);
    link->to->asked(link);
  } else if (receiver.state() == GreetingState::kAccepted) {
    if (link->from->attempting == link) link->from->link_up(link);
  } else if (link->from != nullptr && link->from->attempting == link) {
    link->from->attempt_failed();
  }
}

void Peer::attempt() {
  if (cannot_connect || (net.hostile() && net.rng.one_in(3))) return attempt_failed();
  const auto link = std::make_shared<Link>();
  link->connector = Greeting::connector(hello(), secret);
  link->listener = Greeting::listener(other->secret);
  link->from = this;
  link->to = other;
  link->source = mine.gid;
  attempting = link;
  net.after(net.delay(), [=, this] {
    if (attempting != link || link->dead) return;
    said_hello = true;
    deliver(link, true);
  });
}

void Peer::asked(const LinkPtr& link) {
  const Standing standing{.wired = wired,
                          .linked = linked != nullptr,
                          .committed = goes_first(mine, peer) && said_hello,
                          .mine = mine,
                          .peer = peer};
  const Verdict verdict = judge(link->listener.peer(), link->source, standing);
  link->listener.answer(verdict, hello());
  if (verdict == Verdict::kAccept) {
    ASSERT_NE(link->from, nullptr) << "a stranger was let in";
    drop_attempt();
    link_up(link);
  }
  net.after(net.delay(), [=, this] { deliver(link, false); });
}

const ToySealer kSecret(1), kOtherSecret(2);

// Somebody else: octets that mean nothing, another's hello, or the peer's from the wrong address.
void stranger(Network& net, Peer& victim) {
  const auto link = std::make_shared<Link>();
  Hello said;
  said.from = victim.peer;
  said.to = victim.mine;
  link->source = victim.peer.gid;
  // One that has everything right but the secret is held off by that.
  switch (net.rng.between(0, victim.secret != nullptr ? 3 : 2)) {
    case 3: break;
    case 0: link->source[15] ^= 1U; break;
    case 1: said.from.number ^= 2U; break;
    default: said.to.number ^= 2U; break;
  }
  link->connector = Greeting::connector(said, &kOtherSecret);
  link->listener = Greeting::listener(victim.secret);
  link->to = &victim;
  victim.deliver(link, true);
}

struct Pair {
  explicit Pair(std::uint64_t seed) : net(seed) {
    low.other = &high;
    high.other = &low;
  }
  void expect_one_link() {
    net.run_until(Instant{} + kHostileFor + kPeaceFor);
    ASSERT_NE(low.linked, nullptr);
    EXPECT_EQ(low.linked, high.linked);
    EXPECT_FALSE(low.linked->dead);
  }
  Network net;
  Peer low{net, kLow, kHigh};
  Peer high{net, kHigh, kLow};
  static constexpr End kLow{{1}, to_number({40000, 8})};
  static constexpr End kHigh{{2}, to_number({50000, 12})};
};

TEST(WiringSim, BothEndsComeToOneConnectionWhateverTheNetworkDoes) {
  for_each_seed(2000, [](std::uint64_t seed) {
    Pair pair(seed);
    Network& net = pair.net;
    if (net.rng.one_in(2)) net.longest_delay = Duration{1'000'000};
    const bool low_blocked = net.rng.one_in(5);
    const bool high_blocked = !low_blocked && net.rng.one_in(5);
    if (net.rng.one_in(2)) pair.low.secret = pair.high.secret = &kSecret;
    net.after(net.delay() * net.rng.u32(1, 4), [&] { pair.low.begin(low_blocked); });
    net.after(net.delay() * net.rng.u32(1, 4), [&] { pair.high.begin(high_blocked); });
    for (int i = 0; i < 20; ++i) {
      net.after(net.delay() * 10, [&] { stranger(net, net.rng.one_in(2) ? pair.low : pair.high); });
    }
    pair.expect_one_link();
  });
}

// Connections that are up end at any time: whoever hears of it first seeks the other.
TEST(WiringSim, AConnectionThatIsResetIsMadeAnew) {
  for_each_seed(1000, [](std::uint64_t seed) {
    Pair pair(seed);
    Network& net = pair.net;
    pair.low.begin(false);
    pair.high.begin(false);
    for (int i = 0; i < 10; ++i) {
      net.after(net.up_to(kHostileFor), [&] {
        if (pair.low.linked != nullptr) end_link(net, pair.low.linked);
      });
    }
    pair.expect_one_link();
  });
}

TEST(WiringSim, OneThatMayNotConnectIsConnectedTo) {
  Pair pair(1);
  pair.net.now = Instant{} + kHostileFor;  // peace from the start
  pair.net.longest_delay = Duration{1'000'000};
  pair.low.begin(true);
  pair.high.begin(false);
  pair.expect_one_link();
}

}  // namespace
}  // namespace weft::roce
