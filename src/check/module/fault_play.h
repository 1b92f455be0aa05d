// The part of a process in `weft run --faults`: the rules of the file decide, and each of their
// effects is said on stderr.
//
//   WEFT_FAULTS_FILE   the text of the file, as `weft run` has read it
//   WEFT_FAULTS_RECORD the log of `weft run --record` (fault_log.h)
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "check/module/fault_log.h"
#include "check/module/frames.h"
#include "check/module/peer_names.h"
#include "check/observer.h"
#include "faults/fault_player.h"
#include "os/clock.h"

namespace weft::check {

// One thread at a time, but for start().
class FaultPlay {
 public:
  using Action = faults::FaultPlayer::Action;
  // Something to be done once no lock is held: the hands take locks of the engine, whose threads
  // may wait for the module's.
  struct Order {
    enum class What : std::uint8_t { kBreak, kDisconnect, kRaise, kRaiseCm, kKill } what;
    const void* handle = nullptr;
    int number = 0;  // event or signal
  };

  // As the environment wants it; null: there are no rules for this process.
  static std::unique_ptr<FaultPlay> open();

  FaultPlay(faults::FaultPlayer player, FaultLog log);

  // Those that the calls since the last time have left.
  [[nodiscard]] std::vector<Order> take_orders() { return std::exchange(orders_, {}); }

  // A thread calls `act` for the effects that come at a time. Once.
  void start(std::function<void(const Action&)> act) const;
  // Has such an effect happen.
  void act(const Action& action);

  // How this call of the program fails. `qp`: of the queue pair that it is about, or null. `frames`
  // is asked where it does, and `caller` (its address) where a rule is for calls of some libraries.
  template <class Caller, class Frames>
  [[nodiscard]] Failing call(const char* name, const void* qp, const Listed& list, Caller caller,
                             Frames frames) {
    const std::string library = player_.asks_library(name) ? library_of(caller()) : std::string();
    const auto struck =
        player_.call(name, now(), list.has_second, number_of(qp), library, list.octets);
    if (!struck) return {};
    say(*struck, name, frames());
    return {struck->error, struck->second};
  }
  void made(const Made& object);
  void destroyed(const void* handle);
  // The queue pair was moved to RESET: it begins anew.
  void emptied(const void* handle);
  // A rule counts octets, and wants to know of requests and of receives, and of those that are
  // refused. Any thread.
  [[nodiscard]] bool wants_octets() const { return player_.wants_octets(); }
  [[nodiscard]] std::uint64_t posting(const Posted& request);
  void refused(const void* qp, std::uint64_t octets, std::uint64_t at, bool signaled);
  void posting_receive(const PostedReceive& receive);
  void refused_receive(const PostedReceive& receive);
  [[nodiscard]] bool loses(const void* qp, std::uint64_t wr_id);
  // The request that loses() was asked about was refused. `lost`: what it said.
  void not_posted(const void* qp, bool lost);
  // A request of it is lost, and has not been polled yet.
  [[nodiscard]] bool has_lost(const void* qp) const { return lost_.contains(qp); }
  // The status that the program is told; 0: the completion's own.
  [[nodiscard]] int completes(const Polled& completion);
  [[nodiscard]] InjectedCm fetches(int cm_event);
  // Whether a rule does so; and for how long the next message of a queue pair waits.
  [[nodiscard]] bool delays_receives() const { return player_.has(faults::Effect::kReceiveLate); }
  [[nodiscard]] std::chrono::nanoseconds receive_late(const void* qp);
  // The link of a new connection of a queue pair to a host, or of one of datagrams.
  [[nodiscard]] LinkTrouble link(const void* qp, const std::string& peer);
  // The queue pair of a link, which may have octets under way when it is gone: its number, and
  // which one it is, by creation from 0.
  struct LinkOwner {
    std::uint32_t number = 0;
    std::optional<std::uint64_t> place = {};
  };
  [[nodiscard]] LinkOwner owner_of(const void* qp) const;
  // A rule of its link has its effect, or has none.
  void link_struck(const LinkOwner& of, const LinkRule& rule, std::uint64_t octet, bool possible);
  // The process ends: rules that nothing came of are named.
  void ended() const;

 private:
  struct Known {
    const void* handle;
    Kind kind;
    std::uint32_t number;
    const void* send_cq;
    const void* receive_cq;
    bool is_datagram;
  };
  [[nodiscard]] std::chrono::nanoseconds now() const;
  [[nodiscard]] std::optional<std::uint32_t> number_of(const void* qp) const;
  void tell_misfits(const Known& qp);
  [[nodiscard]] static std::string library_of(const void* address);
  void say(const faults::Struck& struck, const char* call, const std::vector<Frame>& frames);
  // Those that wait for another rule.
  void act_if_due();
  [[nodiscard]] int fails(std::uint32_t qp, std::uint64_t wr_id);
  void raise(const faults::FaultRule& rule);
  void raise_cm(const faults::FaultRule& rule);
  void disconnect(const faults::FaultRule& rule);
  void break_users(const void* cq);  // null: all queue pairs
  [[nodiscard]] const Known* find(const faults::FaultRule& rule) const;

  faults::FaultPlayer player_;
  const PeerNames peers_;
  FaultLog log_;
  const std::int64_t began_ns_ = os::monotonic_ns();
  std::vector<Order> orders_;
  // Queue pairs, CQs and SRQs that live, and the handles of all in the order in which they were
  // made.
  std::unordered_map<const void*, Known> known_;
  std::array<std::vector<const void*>, 3> made_;
  std::unordered_map<std::uint32_t, const void*> of_number_;  // queue pairs
  // The request of a queue pair that is lost, and by which rule.
  struct Lost {
    std::uint64_t wr_id;
    faults::Struck by;
  };
  std::unordered_map<const void*, Lost> lost_;
  std::set<std::pair<int, bool>> told_misfits_;  // lines, and whether of datagrams
  std::set<std::uint64_t> broken_;  // queues of queue pairs with a completion that failed
};

// Has an order carried out, with no lock held.
void obey(const Hands& hands, const FaultPlay::Order& order);
// The same where the engine's locks are held: soon, by another thread.
void obey_later(const Hands& hands, std::vector<FaultPlay::Order> orders);

}  // namespace weft::check
